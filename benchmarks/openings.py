"""How near the optimum a base's first proposals are for a task without measurements.

python -m benchmarks.openings [SEARCHER/MODEL ...] [--kinds made-up recorded] [--seeds 5] [--json FILE]

Each synthetic shape and recorded task in turn is left out. A base of the cost model learns
from the others: 200 random candidates of a shape, all trials of a recorded task. Then the
searcher proposes with it, without defaults. The figure is the best of the first proposals over
the optimum, a geometric mean; failures count as 10. Proposals for a recorded task are moved to
the nearest recorded candidate (docs/replay.md), which blurs choices.
"""

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.hosts import describe_host
from benchmarks.lab.grid import STANDARD, Combination
from benchmarks.lab.replay_search import Arena, RecordedArena, ShownSpace
from benchmarks.lab.summary import WORST
from benchmarks.lab.synthetic_arena import SyntheticArena
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.labels import labels
from mallorn.research.replay.recording_file import read_tasks
from mallorn.searchers.base import DEFAULT, Proposal, Trial
from mallorn.searchers.batch_searcher import Request
from mallorn.searchers.fill_batch import as_pending_trials

SPACES: Final = Path("benchmarks/data/spaces.parquet")
SHAPES: Final = (
    (256, 256, 256),
    (256, 512, 64),
    (96, 768, 384),
    (128, 128, 512),
    (64, 1000, 100),
    (512, 512, 512),
    (1024, 128, 256),
    (192, 192, 768),
)
DRAWN: Final = 200  # candidates of a synthetic shape that a base learns from
FIRST: Final = (1, 4, 16)
KINDS: Final = ("made-up", "recorded")
ARMS: Final = (
    "beam/value",
    "beam-unlearned/value",
    "generator/generator",
    "generator-unlearned/generator",
    "beam/xgboost",
    "evolutionary/xgboost",
    "mcts/xgboost",
    "felix/xgboost",
    "felix-unlearned/xgboost",
    "random/xgboost",
)

Known = tuple[Arena, Sequence[Trial]]


def main() -> None:
    """Compute and print the figures of all arms on each kind of space."""
    options = _arguments()
    os.environ["OMP_NUM_THREADS"] = "1"
    figures: dict[str, dict[str, list[float]]] = {}
    for name in options.kinds:
        figures[name] = _figures(_arenas(name, options.spaces), options.arms, options.seeds)
        print(f"\n{name}\n{'':28}" + "".join(f"{f'best of {many}':>12}" for many in FIRST))
        for arm, best in figures[name].items():
            print(f"{arm:28}" + "".join(f"{ratio:12.3f}" for ratio in best), flush=True)
    headline = _headline(figures)
    if options.json:
        content = {"headline": headline, "seeds": options.seeds, "first": FIRST, "figures": figures}
        options.json.write_text(json.dumps(content | describe_host(), indent=1) + "\n")
    print(headline)


def _arenas(kind: str, spaces: Path) -> list[Known]:
    return list(_made_up() if kind == "made-up" else _recorded(spaces))


def _made_up() -> Iterator[Known]:
    for seed, shape in enumerate(SHAPES):
        arena = SyntheticArena(*shape)
        samples = dict.fromkeys(arena.space.sample(np.random.default_rng(seed), DRAWN))
        yield arena, [arena.measure(candidate) for candidate in samples]


def _recorded(spaces: Path) -> Iterator[Known]:
    for task in read_tasks(spaces):
        if task.optimum_us is not None:
            yield RecordedArena(task, ShownSpace.WIDE), task.trials


def _figures(arenas: Sequence[Known], arms: Sequence[str], seeds: int) -> dict[str, list[float]]:
    """Return geometric means of the best of the first proposals, by arm."""
    logs: dict[str, list[list[float]]] = {arm: [] for arm in arms}
    for number, (arena, _) in enumerate(arenas):
        bases: dict[str, CostModel] = {}
        for arm in arms:
            search, _, model = arm.partition("/")
            if model not in bases:
                bases[model] = _base(model, [each for other, each in enumerate(arenas) if other != number])
            for seed in range(seeds):
                logs[arm].append(_opening(arena, Combination(search, model, "topk"), bases[model], seed))
    return {arm: np.exp(np.mean(each, axis=0)).round(4).tolist() for arm, each in logs.items()}


def _base(name: str, arenas: Sequence[Known]) -> CostModel:
    """Fit a cost model to the trials of all these tasks."""
    make = Combination(STANDARD.search, name, STANDARD.sampler).make_model()
    assert make is not None, "an opening needs a cost model"
    groups = np.repeat(np.arange(len(arenas)), [len(trials) for _, trials in arenas])
    trials = [trial for _, each in arenas for trial in each]
    label = labels([t.latency_us for t in trials], groups, [t.outcome for t in trials])
    rows = [arena.space.features([trial.candidate for trial in each]) for arena, each in arenas]
    model = make()
    model.fit(np.concatenate(rows), label, groups, seed=0)
    return model


def _opening(arena: Arena, chosen: Combination, base: CostModel, seed: int) -> list[float]:
    """Return log(best of the first 1, 4 and 16 proposals / optimum)."""
    taken = as_pending_trials([Proposal(candidate, None, DEFAULT) for candidate in arena.space.defaults()])
    rng = np.random.default_rng(seed)
    proposals = arena.propose(chosen.searcher(), Request(arena.space, taken, base, max(FIRST), rng))
    times = [arena.measure(proposal.candidate).latency_us for proposal in proposals]
    ratios = [min(WORST, us / arena.optimum_us) if us else WORST for us in times]
    return [float(np.log(min([*ratios[:many], WORST]))) for many in FIRST]


def _headline(figures: dict[str, dict[str, list[float]]]) -> str:
    kind, by_arm = next(iter(figures.items()))
    arm, best = min(by_arm.items(), key=lambda each: each[1][0])
    return f"first proposal nearest the best on {kind} spaces: {arm} {best[0]:.3f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arms", nargs="*", metavar="SEARCHER/MODEL", default=list(ARMS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--spaces", type=Path, default=SPACES, help="what `mallorn record` wrote")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
