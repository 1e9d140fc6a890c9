"""Hostile programs, traces, directories and models, each put through the child that reads it:
`python -m benchmarks.hostile_programs --json FILE`.

An outcome is `refused` (with the sentence), `runs` (the child answered) or `child died` (alone).
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.fuzzing import seeds
from benchmarks.hosts import describe_host
from mallorn.core.errors import MallornError, Unavailable
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.model_compiler import ModelCompiler, open_sandboxed_compiler
from mallorn.workers.tvm.network.graph_recipes import TUNED
from tests.fixtures.hostile import accesses, models, programs

LIMIT_SEC: Final = 120.0
MOST_BYTES: Final = 1 << 20  # larger programs are the business of tests/faults/test_hostile_inputs.py
Case = tuple[str, str, bytes]  # kind, name, content


@dataclass(frozen=True)
class Ending:
    """How a program ended that a child read."""

    kind: str
    carrier: str
    name: str
    outcome: str
    sentence: str


def cases() -> dict[str, list[Case]]:
    """Return all programs by the way on which they come."""
    functions = [*accesses.programs(), *accesses.forged()]
    changed = [("other code", name, data) for name, data in programs.programs() if len(data) < MOST_BYTES]
    return {
        "dataset": [*functions, *changed],
        "directory": functions,
        "trace": [("other steps", name, data) for name, data in programs.traces() if len(data) < MOST_BYTES],
        "onnx": [
            *accesses.modules(),
            *accesses.models(),
            *(("more than there is", name, data) for name, data in models.bombs()),
            *(("false claims", name, data) for name, data in models.claims() if len(data) < MOST_BYTES),
        ],
    }


class Readers:
    """The children that read programs, as workers start them."""

    def __init__(self, folder: Path, models_child: ModelCompiler, compiler: CandidateCompiler) -> None:
        self._folder, self._models, self._compiler = folder, models_child, compiler
        self._library, self._good = folder / "room" / "built.so", seeds.programs()[0].decode()

    def dataset(self, data: bytes) -> str:
        """Build a program of a dataset's row, as before it is measured."""
        self._compiler.build(data.decode(errors="replace"), seeds.TARGET, "[]", [], str(self._library))
        return "it was built"

    def trace(self, data: bytes) -> str:
        self._compiler.build(self._good, seeds.TARGET, data.decode(), [], str(self._library))
        return "it was built"

    def directory(self, data: bytes) -> str:
        """Read a directory of schedules with this program; raise what its first bad line says."""
        with TemporaryDirectory(dir=self._folder) as name:
            files = programs.directory(data, [json.loads(seeds.traces()[0]), []])
            for file, content in files.items():
                Path(name, file).write_bytes(content)
            found = self._models.read_metaschedule_log(name, 0, 10)
        if not found.records:
            raise MallornError(found.problems[0].error)
        return "it was read"

    def onnx(self, data: bytes) -> str:
        """Import a model as a job does, and return the number of its tasks."""
        (path := self._folder / "model.onnx").write_bytes(data)
        recipe = TUNED
        found = self._models.extract.call_with_limit(LIMIT_SEC, str(path), seeds.TARGET, recipe, {})
        return f"it has {len(found.tasks)} tasks"


def run(selected: dict[str, list[Case]]) -> Iterator[Ending]:
    """Yield how each program ends."""
    with TemporaryDirectory(prefix="mallorn-hostile-") as name:
        folder = Path(name)
        (room := folder / "room").mkdir()
        with open_sandboxed_compiler(folder) as reader, CandidateCompiler(room=room) as compiler:
            readers = Readers(folder, reader, compiler)
            for carrier, programs_of_carrier in selected.items():
                read: Callable[[bytes], str] = getattr(readers, carrier)
                for kind, case, data in programs_of_carrier:
                    outcome = "runs"
                    try:
                        sentence = read(data)
                    except MallornError as error:
                        outcome = "child died" if isinstance(error, Unavailable) else "refused"
                        sentence = error.message
                    yield Ending(kind, carrier, case, outcome, sentence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    endings = list(run(cases()))
    counts = Counter(ending.outcome for ending in endings)
    if args.json:
        raw = {
            **describe_host(),
            "headline": len(endings),
            "outcomes": counts,
            "programs": [*map(asdict, endings)],
        }
        args.json.write_text(json.dumps({"benchmark": "hostile_programs", **raw}, indent=1) + "\n")
    print(f"{len(endings)} programs: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}")


if __name__ == "__main__":
    main()
