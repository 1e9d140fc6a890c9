"""Of the trials that the oracle recorded, the roller with other constants would have picked none better."""

import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from benchmarks.oracle.gaps import geometric
from benchmarks.oracle.stream import read_trials
from benchmarks.oracle.tasks import task_of
from mallorn.core.targets import Target
from mallorn.core.values.machine import Machine
from mallorn.searchers.decision_features import decision_rows, places_by_sketch
from mallorn.searchers.loop_nest import Nest
from mallorn.searchers.roller.rank_candidates import Constructor
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.measure.measurer_interface import Program
from tests.fixtures.command_line import ROOT
from tests.fixtures.roller_constants import CONSTANTS, FACTORS, HANGS, change

RAW = ROOT / "docs/results/oracle.tar.xz"
LEAST = 0.99  # of the time of what is picked today, geometric mean


@dataclass(frozen=True)
class Recorded:
    """A task on a target, and what its candidates took."""

    sketches: dict[str, Sketch]
    nests: Sequence[Nest]
    machine: Machine
    candidates: list[Candidate]
    took_us: list[float]

    def picked_us(self) -> float:
        """What the candidate took that the model expects most of."""
        constructor, expected = Constructor(self.nests, self.machine), np.full(len(self.candidates), np.inf)
        for key, lines in places_by_sketch([each.sketch for each in self.candidates]).items():
            sketch = self.sketches[key]
            us = constructor.time_us(sketch, decision_rows(sketch, self.candidates, lines))
            expected[lines] = np.inf if us is None else us
        return self.took_us[int(np.argmin(expected))]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """Every task, with AVX-512 and with AVX2."""
    folder = tmp_path_factory.mktemp("oracle")
    with tarfile.open(RAW) as raw:
        # Python 3.11 has filters from 3.11.4 on.
        raw.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
        raw.extractall(folder)
    with CandidateCompiler() as compiler:
        return [_recorded(compiler, cell) for cell in sorted(folder.glob("oracle/*.json"))]


@pytest.fixture(scope="module")
def today_us(recorded: list[Recorded]) -> list[float]:
    return [each.picked_us() for each in recorded]


def _recorded(compiler: CandidateCompiler, path: Path) -> Recorded:
    cell, timed = json.loads(path.read_text()), list(read_trials(path.with_suffix(".jsonl")))
    task, machine = task_of(cell["task"]), Machine.model_validate(cell["machine"])
    program = Program(task.key, task.tir, task.args, task.flops)
    sketches = compiler.design_space(program.tir, Target(cell["target"]).text)
    took_us = [np.inf if trial.time_us is None else trial.time_us for trial in timed]
    known = {sketch.key: sketch for sketch in sketches}
    return Recorded(known, compiler.nests(task.tir), machine, [trial.candidate for trial in timed], took_us)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        pytest.param(name, by, marks=() if (name, by) in HANGS else pytest.mark.long)
        for name in CONSTANTS
        for by in FACTORS
    ],
)
def test_no_constant_picks_better_halved_or_doubled(
    name: str,
    factor: float,
    recorded: list[Recorded],
    today_us: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change(monkeypatch, name, factor)
    losses = [each.picked_us() / us for each, us in zip(recorded, today_us, strict=True)]
    assert geometric(losses) >= LEAST, losses
