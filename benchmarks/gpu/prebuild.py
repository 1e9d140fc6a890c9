"""Build libraries of part 3 in advance: python -m benchmarks.gpu.prebuild TASK TARGET FOLDER TRIALS ROUND

FOLDER gets the first round of the product's search, which begins with the first guess, and the candidates
that chance draws in TRIALS trials, each named by its candidate's key.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu.product_search import ProductSearch, store_build
from benchmarks.gpu.recording import model_task
from benchmarks.gpu.search_places import BY_CHANCE, OURS, SEED
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.searchers.base import Trial
from mallorn.workers.measure.build_candidates import BuiltCandidate

_WAIT_SEC = 1.0
_BUILDERS = 1  # a process for each task runs beside others


def main() -> None:
    """Build what the folder lacks; the parent may end this process at any time."""
    task, target, folder = model_task(sys.argv[1]), Target(sys.argv[2]), Path(sys.argv[3])
    trials, round_size = int(sys.argv[4]), int(sys.argv[5])
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="prebuild-") as scratch:
        search = ProductSearch(task, target, Path(scratch), _BUILDERS, round_size)
        try:
            _build(search, OURS, round_size, folder)
            _build(search, BY_CHANCE, trials, folder)
        finally:
            search.close()
    (folder / "complete.txt").write_text(" ".join(sys.argv[4:]))


def _build(search: ProductSearch, method: str, trials: int, folder: Path) -> None:
    """Build the candidates of a method that chooses them without looking at times."""
    history: list[Trial] = []
    while len(history) < trials and (
        proposals := search.proposals(method, SEED, history, trials - len(history))
    ):
        builds = search.build(proposals, folder)
        while builds.has_unfinished:
            for end in builds.poll(_WAIT_SEC):
                if isinstance(end, BuiltCandidate):
                    store_build(folder, end)
        history += [
            Trial(proposal.candidate, Outcome.BUILD_ERROR, origin=proposal.origin) for proposal in proposals
        ]


if __name__ == "__main__":
    main()
