"""A made-up device: its formula, its failures and its time, for as many slots as anybody likes."""

import subprocess
import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest

from mallorn.core.errors import LeaseLost
from mallorn.core.job_options import JobOptions, SimulatedOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import parse_target
from mallorn.searchers.space import Candidate, Choice, ChoiceKind, Sketch
from mallorn.searchers.synthetic_space import SyntheticSpace
from mallorn.searchers.testing import generator
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult, Program
from mallorn.workers.process import lease_renewal
from mallorn.workers.process.lease_renewal import LeaseKeeper
from mallorn.workers.subprocesses.shutdown import STOP, ShutdownRequested
from mallorn_research.simulated_device.measurer import (
    LEAST_US,
    OPS_PER_US,
    SPREAD,
    SimulatedMeasurer,
    latency_us,
)
from tests.kits.measurers import MeasurerTestCase, Workplace

TARGET = parse_target({"kind": "llvm", "num-cores": 2, "device": "simulated"})
PROGRAM = Program(key="program", tir="", args=Arguments(()), flops=1e6)
SPACE = SyntheticSpace(64, 64, 64)
FLOOR_US = LEAST_US + 1e6 / OPS_PER_US / 2


def slots(count: int, seed: int = 0) -> list[MeasureInput]:
    drawn = list(dict.fromkeys(SPACE.sample(generator(seed), 2 * count)))[:count]
    return [MeasureInput(at, each, SPACE.by_key[each.sketch]) for at, each in enumerate(drawn)]


def answers(wanted: list[MeasureInput], **pretends: float) -> list[MeasureResult]:
    options = JobOptions(simulated=SimulatedOptions.model_validate(pretends))
    return list(SimulatedMeasurer().measure(PROGRAM, TARGET, wanted, options))


class TestSimulatedMeasurer(MeasurerTestCase):
    """Half of all candidates fail: three that do not, and one that does."""

    @pytest.fixture
    def measurer(self) -> SimulatedMeasurer:
        return SimulatedMeasurer()

    @pytest.fixture
    def workplace(self) -> Workplace:
        options = JobOptions(simulated=SimulatedOptions(failure_rate=0.5))
        failed = [result.trial.outcome.failed for result in answers(slots(40), failure_rate=0.5)]
        good = [slot for slot, bad in zip(slots(40), failed, strict=True) if not bad][:3]
        return Workplace(PROGRAM, TARGET, [*good, slots(40)[failed.index(True)]], options)


def test_a_candidate_takes_the_same_in_every_process() -> None:
    program = (
        "from research.tests.unit.simulated_device.test_measurer import *;"
        "print([result.trial.latency_us for result in answers(slots(5))])"
    )
    other = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert other.stdout.strip() == str([result.trial.latency_us for result in answers(slots(5))])


def test_times_lie_between_the_floor_and_what_the_formula_allows_and_differ() -> None:
    times = [result.trial.latency_us or 0.0 for result in answers(slots(200))]
    assert len(set(times)) > 190
    assert FLOOR_US <= min(times) < max(times) <= 2 * FLOOR_US * SPREAD


def test_another_seed_is_another_device() -> None:
    assert answers(slots(5), seed=1) != answers(slots(5), seed=2)


def test_the_favourite_of_a_seed_takes_the_floor_and_its_sketchs_share() -> None:
    tile = Sketch("s", "", (Choice(ChoiceKind.TILE, 1, extent=8),))
    only = MeasureInput(0, Candidate("s", (8,)), tile)
    assert FLOOR_US <= latency_us(PROGRAM, TARGET, only, seed=0) < 2 * FLOOR_US


def test_what_a_candidate_takes_does_not_hang_on_the_workload_that_its_sketch_was_stored_with() -> None:
    """Workloads of other sizes share a sketch's row, with the extents and values of the first of them."""
    for slot in slots(10):
        others = tuple(replace(choice, extent=7, values=(5,), labels=()) for choice in slot.sketch.choices)
        stored = replace(slot, sketch=replace(slot.sketch, choices=others))
        assert answers([stored]) == answers([slot])


def test_about_as_many_fail_as_asked_for_and_always_the_same() -> None:
    first, again = (answers(slots(1000), failure_rate=0.1) for _ in range(2))
    assert first == again
    failed = [result for result in first if result.trial.outcome is Outcome.RUN_ERROR]
    assert 60 < len(failed) < 140
    assert answers(slots(10), failure_rate=1)[0].trial.outcome is Outcome.RUN_ERROR


def test_a_candidate_keeps_its_device_as_long_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(lease_renewal.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(lease_renewal.time, "sleep", lambda sec: clock.__setitem__(0, clock[0] + sec))
    results = answers(slots(3), device_sec=1.5)
    assert clock[0] == pytest.approx(4.5)
    assert [result.trial.run_ms for result in results] == [1500.0] * 3


def test_a_worker_that_shall_stop_waits_for_no_made_up_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(STOP, "raise_if_requested", Mock(side_effect=ShutdownRequested))
    with pytest.raises(ShutdownRequested):
        answers(slots(1), device_sec=600)


def test_a_simulated_candidate_ends_when_its_job_is_cancelled() -> None:
    with LeaseKeeper(lambda: False, lease_sec=0.06), pytest.raises(LeaseLost):
        answers(slots(1), device_sec=600)


def test_a_thousand_slots_are_measured_without_tvm_and_without_a_process() -> None:
    program = (
        "import sys; from research.tests.unit.simulated_device.test_measurer import *;"
        "measurers = [SimulatedMeasurer.from_tools(None) for _ in range(1000)];"
        "streams = [m.measure(PROGRAM, TARGET, slots(2), JobOptions()) for m in measurers];"
        "assert all(next(stream).trial.run_us for stream in streams);"
        "sys.exit('tvm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
