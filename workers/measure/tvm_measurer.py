"""Measures candidates with TVM: builders compile them, and a device times them over RPC."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import Self

from mallorn.core.host_id import host_id
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target
from mallorn.core.values.disturbance import Disturbance
from mallorn.workers.device.device_class import no_device_error
from mallorn.workers.host.host_lock import HostLock
from mallorn.workers.measure.build_candidates import Builds, BuiltCandidate
from mallorn.workers.measure.device_runs import DeviceRuns, TimingDriftDetector
from mallorn.workers.measure.measurer_interface import MeasureInput, Measurer, MeasureResult, Program, Tools
from mallorn.workers.measure.run_timeout_and_retakes import run_timeout_sec
from mallorn.workers.measure.tracked_devices import Fleet, TrackedDevice, of_class, shares_locks
from mallorn.workers.sandbox.untrusted_files import untrusted_folder

BUILD_POLL_SEC = 0.5
# Longest delay in noticing that a library is ready, or that a device on another host is idle.
OVERLAP_POLL_SEC = 0.005
# After so long without a built candidate, a round lets other rounds have its device: about
# the time in which a session with a GPU begins again.
RELEASE_SEC = 1.0
# A candidate this much slower than the fastest of one pass does not take part in the next.
FAR_BEHIND = 1.05
# Fewest devices over which passes are spread: if two disagree, neither is known to be right.
LEAST_SPREAD = 3


@dataclass(eq=False)
class TvmMeasurer(Measurer):
    """Builds in the worker's builders and times through its runner, which outlive the round."""

    tools: Tools

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        return cls(tools)

    def measure(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        """Measure every candidate once, as soon as it is built."""
        hosts = {device.endpoint.host_id for device in self._devices(target)}
        # Builds on this host disturb a CPU that times here; a GPU is timed by its own clock.
        measure_all = (
            time_between_builds if target.runs_on_cores and host_id() in hosts else time_during_builds
        )
        limit_sec, tools = run_timeout_sec(program, options, best_us), self.tools
        tracker, like = tools.settings.tracker, tools.like
        runs = DeviceRuns(
            tools.runner, tracker, target, program, options, limit_sec, best_us, keeps_best=True, like=like
        )
        with self._build_for(runs, inputs) as builds:
            results = measure_all(builds, runs, HostLock())
            for result in TimingDriftDetector(runs, builds).yield_with_drift_checks(results):
                yield mark_if_builders_ran(result, target)

    def measure_in_passes(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        """Build every candidate once, and time all in turn, up to `passes` times. A
        candidate that falls far behind or fails has fewer results. With enough devices of
        one class, each pass uses another device."""
        devices = self._devices(target)
        is_one_class = len({device.endpoint.device_class for device in devices}) == 1
        spread = is_one_class and len(devices) >= max(passes, LEAST_SPREAD)
        # The job's own limit: a winner must not time out in a busy moment of its device.
        limit_sec, tools = options.run_timeout_sec, self.tools
        tracker, like = tools.settings.tracker, tools.like
        runs = DeviceRuns(
            tools.runner, tracker, target, program, options, limit_sec, purpose="/finish", like=like
        )
        with self._build_for(runs, inputs, any_size=True) as builds:
            results = time_in_passes(builds, runs, passes, HostLock(), spread)
            return [mark_if_builders_ran(result, target) for result in results]

    @contextmanager
    def _build_for(
        self, runs: DeviceRuns, inputs: Sequence[MeasureInput], any_size: bool = False
    ) -> Iterator[Builds]:
        """Yield the builds of the candidates to time; then stop them and release the device."""
        program, target, limit_sec = runs.program, runs.target, runs.options.build_timeout_sec
        with untrusted_folder("build-", self.tools.room) as folder:
            builds = Builds(self.tools.builders, inputs, program, target, folder, limit_sec, any_size)
            try:
                yield builds
            finally:
                builds.abort()
                runs.release_device()
                self.device_seconds = runs.device_seconds

    def _devices(self, target: Target) -> list[TrackedDevice]:
        devices = of_class(Fleet(self.tools.settings).devices(target), self.tools.like)
        if not devices:
            raise no_device_error(self.tools.like)
        return devices


def mark_if_builders_ran(result: MeasureResult, target: Target) -> MeasureResult:
    """Return `result`; its time is an upper bound if builders may have run on that host."""
    endpoint, trial = result.endpoint, result.trial
    if not trial.run_us or not target.runs_on_cores or endpoint is None or shares_locks(endpoint):
        return result
    fields = {"upper_bounds": 1, "separate_locks": True}
    disturbance = (result.disturbance or Disturbance(candidates=1)).model_copy(update=fields)
    return replace(result, trial=replace(trial, disturbed=1.0), disturbance=disturbance)


def time_between_builds(builds: Builds, timing: DeviceRuns, host: HostLock) -> Iterator[MeasureResult]:
    """Time on a device that shares cores with the builders; suspend these meanwhile."""
    timing.take_device()
    with host.hold_shared() as turn:
        while builds.has_unfinished:
            turn.pause_if_requested(builds.pause, builds.go_on)
            ends = builds.poll(BUILD_POLL_SEC)
            yield from (end for end in ends if isinstance(end, MeasureResult))
            candidates = [end for end in ends if isinstance(end, BuiltCandidate)]
            if not candidates:
                continue
            builds.pause()
            results: list[MeasureResult] = []
            try:
                for candidate in candidates:
                    results.append(timing.measure(candidate))
            finally:
                builds.go_on()
                yield from results  # also those timed before the device was lost


def time_in_passes(
    builds: Builds, timing: DeviceRuns, passes: int, host: HostLock, spread: bool = False
) -> list[MeasureResult]:
    """Build all candidates, then time all of them several times in turn, so that slow
    phases of the machine affect all alike. With `spread`, each pass uses another device, so
    that no broken or dishonest device can exclude a candidate."""
    ends: list[BuiltCandidate | MeasureResult] = []
    with host.hold_shared() as turn:
        while builds.has_unfinished:
            turn.pause_if_requested(builds.pause, builds.go_on)
            ends += builds.poll(BUILD_POLL_SEC)
    results = [end for end in ends if isinstance(end, MeasureResult)]
    rivals = [end for end in ends if isinstance(end, BuiltCandidate)]
    used_devices: set[str] = set()
    for _ in range(passes):
        if spread:
            used_devices.add(timing.take_another(used_devices))
        latest = list[MeasureResult]()
        for rival in rivals:
            timing.take_device()
            with host.hold_shared():
                latest.append(timing.measure(rival))
        results += latest
        if not spread:
            # A candidate that failed, or is far behind the fastest of the pass, cannot win any more.
            times_us = [result.trial.latency_us or inf for result in latest]
            limit_us = min((us for us in times_us if us < inf), default=0.0) * FAR_BEHIND
            rivals = [rival for rival, us in zip(rivals, times_us, strict=True) if us <= limit_us]
    return results


def time_during_builds(builds: Builds, timing: DeviceRuns, host: HostLock) -> Iterator[MeasureResult]:
    """Build and time simultaneously: the device shares no cores with the builders."""
    ready: deque[BuiltCandidate] = deque()
    with host.hold_shared() as turn:
        while builds.has_unfinished:
            turn.pause_if_requested(builds.pause, builds.go_on)
            yield from _advance_builds_and_timing(builds, timing, ready)
    while ready or not timing.is_idle:
        yield from _advance_builds_and_timing(builds, timing, ready)


def _advance_builds_and_timing(
    builds: Builds, timing: DeviceRuns, ready: deque[BuiltCandidate]
) -> Iterator[MeasureResult]:
    if ready and timing.is_idle:
        timing.start_timing(ready.popleft())
    if not builds.has_unfinished and not timing.is_idle:
        timing.wait()
    for end in builds.poll(OVERLAP_POLL_SEC if ready or not timing.is_idle else BUILD_POLL_SEC):
        if isinstance(end, MeasureResult):
            yield end
        else:
            ready.append(end)
    if not timing.is_idle and (result := timing.poll()) is not None:
        yield result
    if builds.has_unfinished and not ready and timing.clock.idle_sec() > RELEASE_SEC:
        timing.release_device()
