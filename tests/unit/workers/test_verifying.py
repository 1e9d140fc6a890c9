"""A helper that dies while a winner is checked is asked once more, before the winner is judged by it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.workers.finish.numeric_check import Unchecked, Verifier
from mallorn.workers.interfaces.device_runner import LibraryRun
from mallorn.workers.interfaces.output_comparison import Agreement, Reference
from mallorn.workers.measure.measurer_interface import MeasureInput, Program
from mallorn.workers.process.leased_work import StageFolder
from mallorn.workers.subprocesses.errors import ChildCrashed, ChildKilled

PROGRAM: Any = SimpleNamespace(key="k" * 64, tir="{}", args=(), flops=1.0)
SLOT: Any = SimpleNamespace(
    slot=0, candidate=SimpleNamespace(key="c", decisions=(1,)), sketch=SimpleNamespace(trace="[]")
)
TARGET: Any = SimpleNamespace(text="{}")
STEPS = ("reference", "full_trace", "build_whole", "run_outputs")


class Helpers:
    """Every helper that a check asks; each dies as often as a test says."""

    def __init__(self) -> None:
        self.deaths: dict[str, list[ChildCrashed]] = {}
        self.settings = SimpleNamespace(tracker="127.0.0.1:1")
        self.fleet = SimpleNamespace(devices=lambda _target: ["the only one"])
        self.compiler = self.runner = self.graphs = self

    def write_reference(self, *_asked: object) -> Reference:
        return self._answer("reference", Reference([2], 8))

    def full_trace(self, *_asked: object) -> str:
        return self._answer("full_trace", "[trace]")

    def build_whole_program(self, *_asked: object) -> None:
        self._answer("build_whole", None)

    def take_device(self, *_asked: object, hold: bool, like: object) -> None:
        assert hold

    def run_and_save_arrays(self, **_asked: object) -> LibraryRun:
        return self._answer("run_outputs", LibraryRun(Outcome.OK))

    def compare_outputs(self, *_asked: object) -> Any:
        return Agreement(1e-7, 1e-3, ok=True)

    def _answer(self, name: str, answer: Any) -> Any:
        if left := self.deaths.get(name):
            raise left.pop()
        return answer


@pytest.fixture
def helpers() -> Helpers:
    return Helpers()


def verified(helpers: Any) -> Outcome:
    program: Program = PROGRAM
    slot: MeasureInput = SLOT
    return (
        Verifier(helpers, TARGET, helpers.graphs, StageFolder(Path("/nowhere"), Path("/nowhere")))
        .verify(program, slot)
        .outcome
    )


@pytest.mark.parametrize("step", STEPS)
def test_one_death_of_a_helper_is_not_held_against_a_candidate(helpers: Helpers, step: str) -> None:
    helpers.deaths[step] = [ChildKilled("graphs died of SIGKILL")]
    assert verified(helpers) is Outcome.OK


@pytest.mark.parametrize("step", STEPS)
def test_a_candidate_whose_check_kills_its_helper_again_costs_itself_alone(
    helpers: Helpers, step: str
) -> None:
    helpers.deaths[step] = [ChildCrashed("graphs died of SIGSEGV") for _ in range(2)]
    assert verified(helpers).failed


def test_without_a_device_a_death_is_not_held_against_a_candidate_either(helpers: Any) -> None:
    helpers.deaths["full_trace"] = [ChildKilled("compiler died of SIGKILL")]
    assert Unchecked(helpers, TARGET).verify(PROGRAM, SLOT).has_passed
