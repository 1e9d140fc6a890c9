"""A kernel whose time is known tells of what no counter shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.outcomes import Outcome
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.trial import Trial
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.measure.build_candidates import Builds, BuiltCandidate
from mallorn.workers.measure.device_runs import DeviceRuns, TimingDriftDetector
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult

BEST, LAST = (
    BuiltCandidate(MeasureInput(at, Candidate("s", (at,)), Sketch("s", "[]", ())), Path(f"{at}.so"), (), 1.0)
    for at in (0, 1)
)


def ran(slot: int, *run_us: float, disturbed: float = 0.0) -> MeasureResult:
    trial = Trial(Candidate("s", (slot,)), Outcome.OK, run_us=run_us, disturbed=disturbed)
    return MeasureResult(slot, trial, disturbance=Disturbance(candidates=1, valid_sec=0.1))


class Device:
    """A device on which the fastest and the last, known to take 10 and 30 us, take what they are told to,
    in shares of that; and builders beside it."""

    is_idle = True

    def __init__(self, *again: float | None) -> None:
        self.fastest, self.latest = (BEST, 10.0), (LAST, 30.0)
        self.events: list[str] = []
        self._again = list(again)

    def pause(self) -> None:
        self.events.append("pause")

    def go_on(self) -> None:
        self.events.append("go on")

    def measure_again(self, built: BuiltCandidate) -> MeasureResult:
        known_us = dict((self.fastest, self.latest))[built]
        self.events.append("again")
        if (share := self._again.pop(0)) is None:
            raise Unavailable("the device was lost")
        return ran(0, known_us * share, disturbed=0.5 if share < 0 else 0.0)

    def watched(self, results: Sequence[MeasureResult]) -> list[MeasureResult]:
        return list(
            TimingDriftDetector(cast("DeviceRuns", self), cast("Builds", self)).yield_with_drift_checks(
                iter(results)
            )
        )


@pytest.mark.parametrize("again", [0.96, 1.0, 1.04])
def test_times_stand_while_the_known_one_holds(again: float) -> None:
    results = [ran(0, 10.0), ran(1, 30.0)]
    device = Device(again, again)
    assert device.watched(results) == results


@pytest.mark.parametrize("again", [0.5, 2.0])
def test_a_drift_to_either_side_makes_bounds_of_what_was_timed_since(again: float) -> None:
    results = [ran(0, 10.0), ran(1, 30.0)]
    told = Device(again, again).watched(results)
    assert told[:2] == results, "as soon as they are known"
    assert [(each.slot, each.trial.disturbed, each.trial.is_bound) for each in told[2:]] == [
        (0, pytest.approx(0.5), True),
        (1, pytest.approx(0.5), True),
    ]
    assert all(each.disturbance and each.disturbance.upper_bounds == 1 for each in told[2:])


def test_one_kernel_that_is_slower_in_another_process_is_no_drift() -> None:
    results = [ran(0, 10.0)]
    assert Device(2.0, 1.0).watched(results) == results


def test_a_look_that_was_disturbed_itself_says_nothing() -> None:
    results = [ran(0, 10.0)]
    assert Device(-2.0, -2.0).watched(results) == results


def test_a_surprising_time_is_looked_into_at_once() -> None:
    device = Device(1.0, 1.0)
    device.watched([ran(0, 10.0, 14.0), ran(1, 30.0)])
    assert device.events.count("again") == 2


def test_failures_and_bounds_prove_nothing_and_cost_no_look() -> None:
    failed = MeasureResult(0, Trial(Candidate("s", (0,)), Outcome.RUN_ERROR))
    device = Device()
    device.watched([failed, ran(1, 10.0, disturbed=0.4)])
    assert device.events == []


def test_builders_stand_still_meanwhile() -> None:
    device = Device(1.0)
    device.watched([ran(0, 10.0)])
    assert device.events == ["pause", "again", "go on"]


def test_a_device_that_is_lost_then_costs_no_result() -> None:
    results = [ran(0, 10.0)]
    assert Device(None, None).watched(results) == results
