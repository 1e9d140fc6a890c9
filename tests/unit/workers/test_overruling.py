"""What one device computes wrongly is computed by two others, where there are so many."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.workers.finish.numeric_check import Verifier
from mallorn.workers.interfaces.device_runner import LibraryRun
from mallorn.workers.interfaces.output_comparison import Agreement
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn.workers.process.leased_work import StageFolder

TARGET = parse_target({"kind": "llvm", "num-cores": 2})
PROGRAM = Program("w0", "{}", Arguments(()), 1e6)
SLOT = MeasureInput(0, Candidate("s", (1,)), Sketch("s", "[]", ()))


class Row:
    """Devices in a row: who is given back comes last."""

    def __init__(self, wrong: list[bool]) -> None:
        self.wrong = wrong
        self.asked = 0
        self.at = 0

    def release_devices(self) -> None:
        self.at = (self.at + 1) % len(self.wrong)

    def take_device(self, *_told: object, **_more: object) -> None:
        """It is taken."""

    def run_and_save_arrays(self, **_told: object) -> LibraryRun:
        self.asked += 1
        return LibraryRun(Outcome.OK)

    def compare(self, *_told: object) -> Agreement:
        return Agreement(0.5, 0.1, ok=not self.wrong[self.at])


def verdict(row: Row, tmp_path: Path) -> bool:
    asked = {
        "write_reference": lambda *_: None,
        "build_whole_program": lambda *_: None,
        "compare_outputs": row.compare,
    }
    runtime: Any = SimpleNamespace(
        compiler=SimpleNamespace(full_trace=lambda *_: "[]"),
        runner=row,
        settings=SimpleNamespace(tracker="t:1"),
        fleet=SimpleNamespace(devices=lambda _target: row.wrong),
    )
    graphs: Any = SimpleNamespace(**asked)
    return Verifier(runtime, TARGET, graphs, StageFolder(tmp_path, tmp_path)).verify(PROGRAM, SLOT).has_passed


@pytest.mark.parametrize(
    ("wrong", "ok", "asked"),
    [
        ([False, True, True], True, 1),
        ([True, False, False], True, 3),
        ([True, True, False], False, 3),
        ([True, False], False, 1),
        ([True], False, 1),
    ],
)
def test_two_others_overrule_one(wrong: list[bool], ok: bool, asked: int, tmp_path: Path) -> None:
    row = Row(wrong)
    assert (verdict(row, tmp_path), row.asked) == (ok, asked)
