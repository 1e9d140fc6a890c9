"""How building and timing take turns: the order of events, without compilers or devices."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from mallorn.core.errors import Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.fleet import DeviceInfo
from mallorn.core.values.trial import Trial
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.device.device_class import Endpoint
from mallorn.workers.host.host_lock import HostLock, lock_identity
from mallorn.workers.measure.build_candidates import Builds, BuiltCandidate
from mallorn.workers.measure.device_runs import DeviceRuns
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult
from mallorn.workers.measure.tvm_measurer import (
    mark_if_builders_ran,
    time_between_builds,
    time_during_builds,
    time_in_passes,
)

CPU, GPU = (Target(f'{{"kind":"{kind}"}}') for kind in ("llvm", "cuda"))
FAILED = MeasureResult(9, Trial(Candidate("sketch", (9,)), Outcome.BUILD_ERROR, error="refused"))


def built(slot: int) -> BuiltCandidate:
    place = MeasureInput(slot, Candidate("sketch", (slot,)), Sketch("sketch", "[]", ()))
    return BuiltCandidate(place, Path(f"{slot}.so"), [], 1.0)


def ran(slot: MeasureInput, latency_us: float) -> MeasureResult:
    return MeasureResult(slot.slot, Trial(slot.candidate, Outcome.OK, run_us=(latency_us,)))


class Scripted:
    """Builders that end candidates in a given order, and a device that needs two looks for each."""

    def __init__(self, *batches: list[BuiltCandidate | MeasureResult]) -> None:
        self.events: list[str] = []
        self.latency_us: dict[int, float | None] = {}
        self.lost_at: int | None = None
        self._batches = deque(batches)
        self.timed: BuiltCandidate | None = None
        self.looks = 0

    @property
    def has_unfinished(self) -> bool:
        return bool(self._batches)

    @property
    def is_idle(self) -> bool:
        return self.timed is None

    def poll(self, timeout_sec: float) -> list[BuiltCandidate | MeasureResult]:
        return self._batches.popleft() if self._batches else []

    def pause(self) -> None:
        self.events.append("pause")

    def go_on(self) -> None:
        self.events.append("go on")

    def take_device(self) -> None:
        self.events.append("take")

    def start_timing(self, candidate: BuiltCandidate) -> None:
        assert self.timed is None, "one candidate at a time"
        self.events.append(f"begin {candidate.input.slot}")
        self.timed, self.looks = candidate, 0

    def measure(self, candidate: BuiltCandidate) -> MeasureResult:
        self.events.append(f"measure {candidate.input.slot}")
        if candidate.input.slot == self.lost_at:
            raise Unavailable
        latency_us = self.latency_us.get(candidate.input.slot, 1.0)
        if latency_us is None:
            return MeasureResult(candidate.input.slot, Trial(candidate.input.candidate, Outcome.RUN_ERROR))
        return ran(candidate.input, latency_us)


class ScriptedDevice:
    """The device's side of the same script."""

    def __init__(self, script: Scripted) -> None:
        self._script = script
        self.take_device, self.start_timing, self.measure = (
            script.take_device,
            script.start_timing,
            script.measure,
        )

    @property
    def is_idle(self) -> bool:
        return self._script.is_idle

    def wait(self) -> None:
        return

    def poll(self) -> MeasureResult | None:
        script = self._script
        script.looks += 1
        if script.timed is None or script.looks < 2:
            return None
        slot, script.timed = script.timed.input, None
        return ran(slot, 1.0)


def sides(*batches: list[BuiltCandidate | MeasureResult]) -> tuple[Scripted, Builds, DeviceRuns]:
    script = Scripted(*batches)
    return script, cast("Builds", script), cast("DeviceRuns", ScriptedDevice(script))


def test_builders_stand_still_while_the_device_beside_them_measures() -> None:
    script, builds, timing = sides([built(0)], [], [built(1), built(2)])
    assert [result.slot for result in time_between_builds(builds, timing, HostLock())] == [0, 1, 2]
    assert script.events == [
        "take",
        *("pause", "measure 0", "go on"),
        *("pause", "measure 1", "measure 2", "go on"),
    ]


def test_builders_go_on_before_a_result_is_handed_out() -> None:
    script, builds, timing = sides([built(0)], [built(1)])
    next(time_between_builds(builds, timing, HostLock()))
    assert script.events[-1] == "go on"


def test_what_was_timed_before_the_device_was_lost_is_handed_out() -> None:
    script, builds, timing = sides([built(0), built(1)])
    script.lost_at = 1
    results = time_between_builds(builds, timing, HostLock())
    assert next(results).slot == 0
    with pytest.raises(Unavailable):
        next(results)


def test_a_failed_build_stops_nobody() -> None:
    script, builds, timing = sides([FAILED])
    assert list(time_between_builds(builds, timing, HostLock())) == [FAILED]
    assert script.events == ["take"]


def test_a_device_elsewhere_measures_one_at_a_time_while_others_build() -> None:
    script, builds, timing = sides([built(0), FAILED], [built(1)], [built(2)], [])
    results = list(time_during_builds(builds, timing, HostLock()))
    assert sorted(result.slot for result in results) == [0, 1, 2, 9]
    assert script.events == ["begin 0", "begin 1", "begin 2"]


def test_rivals_are_timed_in_turn_after_all_are_built() -> None:
    script, builds, timing = sides([built(0)], [built(1), FAILED])
    results = time_in_passes(builds, timing, 2, HostLock())
    assert script.events == ["take", "measure 0", "take", "measure 1"] * 2
    assert [result.slot for result in results] == [9, 0, 1, 0, 1]


def test_who_falls_far_behind_or_fails_is_not_timed_again() -> None:
    script, builds, timing = sides([built(0), built(1), built(2), built(3)])
    script.latency_us = {0: 100.0, 1: 104.0, 2: 106.0, 3: None}
    time_in_passes(builds, timing, 3, HostLock())
    timed = [event for event in script.events if event != "take"]
    assert timed == [f"measure {slot}" for slot in (0, 1, 2, 3, 0, 1, 0, 1)]


def test_a_contest_that_nobody_survives_ends() -> None:
    script, builds, timing = sides([built(0)])
    script.latency_us = {0: None}
    assert [result.trial.outcome for result in time_in_passes(builds, timing, 3, HostLock())] == [
        Outcome.RUN_ERROR
    ]


class Crowded:
    """A host on which somebody else wants to be alone again and again."""

    @contextmanager
    def hold_shared(self) -> Iterator["Crowded"]:
        yield self

    def pause_if_requested(self, pause: Callable[[], None], go_on: Callable[[], None]) -> None:
        pause()
        go_on()


def test_building_stands_still_while_another_is_alone_on_the_host() -> None:
    script, builds, timing = sides([built(0)])
    assert len(list(time_between_builds(builds, timing, cast(HostLock, Crowded())))) == 1
    assert script.events == ["take", "pause", "go on", "pause", "measure 0", "go on"]


@pytest.mark.parametrize(
    ("host", "locks", "target", "is_bound"),
    [
        (host_id(), "of another folder", CPU, True),
        (host_id(), lock_identity(), CPU, False),
        (host_id(), "", CPU, False),  # of an older version
        ("elsewhere", "of another folder", CPU, False),
        (host_id(), "of another folder", GPU, False),
    ],
)
def test_a_time_is_a_bound_where_builders_of_the_host_do_not_wait_for_the_device(
    host: str, locks: str, target: Target, is_bound: bool
) -> None:
    endpoint = Endpoint("device", host, "class", 2, "0.27.0", DeviceInfo(lock_file=locks))
    result = mark_if_builders_ran(replace(ran(built(0).input, 7.0), endpoint=endpoint), target)
    assert (result.trial.is_bound, result.trial.latency_us) == (is_bound, 7.0)
    told = result.disturbance or Disturbance()
    assert ("share no locks; 1 of 1" in told.description, "MALLORN_HOST_FOLDER" in told.hint) == (
        is_bound,
        is_bound,
    )


def test_a_time_is_a_bound_where_this_process_cannot_open_its_own_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mallorn.workers.measure.tracked_devices.lock_identity", lambda: "")
    endpoint = Endpoint("device", host_id(), "class", 2, "0.27.0", DeviceInfo(lock_file="of the device"))
    assert mark_if_builders_ran(replace(ran(built(0).input, 7.0), endpoint=endpoint), CPU).trial.is_bound


def test_a_failure_on_a_device_without_common_locks_stays_what_it_is() -> None:
    endpoint = Endpoint("device", host_id(), "class", 2, "0.27.0", DeviceInfo(lock_file="of another folder"))
    failed = replace(FAILED, endpoint=endpoint)
    assert mark_if_builders_ran(failed, CPU) == failed
