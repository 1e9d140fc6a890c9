"""Measures candidates with TVM: warm builders, and a device over RPC, as one stream."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Self

from mallorn.core.host_id import host_id
from mallorn.core.job_options import JobOptions
from mallorn.core.settings import Settings
from mallorn.core.targets import Target
from mallorn.core.values.disturbance import Disturbance
from workers.device.device_class import DeviceClass, none_like
from workers.host.host_lock import HostLock
from workers.interfaces.candidate_compiler import Library
from workers.interfaces.device_runner import Runner
from workers.measure.base import MeasureInput, Measurer, MeasureResult, Program, Tools
from workers.measure.build_candidates import Builds, Built
from workers.measure.device_runs import DeviceRuns, TimingDriftDetector
from workers.measure.run_timeout_and_retakes import run_timeout_sec
from workers.measure.tracked_devices import Fleet, TrackedDevice, of_class, shares_locks
from workers.sandbox.untrusted_files import untrusted_folder
from workers.subprocesses.process_pool import ChildPool

BUILD_POLL_SEC = 0.5
# How long a device on another host may stand idle before we notice that a library is ready, or it is.
OVERLAP_POLL_SEC = 0.005
# A rival this much slower than the fastest of one pass does not take part in the next.
FAR_BEHIND = 1.05
# Of two devices that disagree nobody knows which is right.
LEAST_SPREAD = 3


class TvmMeasurer(Measurer):
    """Builds in `builders` and times through `runner`; both stay warm for the next round."""

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        return cls(tools.settings, tools.builders, tools.runner, tools.room, tools.like)

    def __init__(
        self,
        settings: Settings,
        builders: ChildPool[Library],
        runner: Runner,
        room: Path | None = None,
        like: DeviceClass | None = None,
    ) -> None:
        self._settings = settings
        self._fleet = Fleet(settings)
        self._builders = builders
        self._runner = runner
        self._room = room
        self._like = like

    def measure(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        """Measure every slot once, as soon as it is built."""
        hosts = {device.endpoint.host_id for device in self._devices(target)}
        # What is built here disturbs a CPU that measures here; a GPU measures by its own clock.
        measure_all = alternate if target.is_cpu and host_id() in hosts else overlap
        with untrusted_folder("build-", self._room) as folder:
            limit_sec = options.build_timeout_sec
            builds = Builds(self._builders, slots, program, target, folder, limit_sec)
            timing = DeviceRuns(
                self._runner,
                self._settings.tracker,
                target,
                program,
                options,
                run_timeout_sec(program, options, best_us),
                best_us,
                keeps_best=True,
                like=self._like,
            )
            try:
                results = measure_all(builds, timing, HostLock())
                for result in TimingDriftDetector(timing, builds).watch(results):
                    yield marked(result, target)
            finally:
                builds.abort()
                timing.give_back()

    def compare(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        """Build every slot once and time them in turn, up to `passes` times over: who falls far behind or
        fails has fewer results. Where that many devices are alike, each pass is another's."""
        spread = alike(self._devices(target)) >= max(passes, LEAST_SPREAD)
        with untrusted_folder("build-", self._room) as folder:
            limit_sec = options.build_timeout_sec
            builds = Builds(self._builders, slots, program, target, folder, limit_sec, any_size=True)
            # The job's whole limit: a winner must not be lost to a busy moment of its device.
            timing = DeviceRuns(
                self._runner,
                self._settings.tracker,
                target,
                program,
                options,
                options.run_timeout_sec,
                purpose="/finish",
                like=self._like,
            )
            try:
                results = in_turn(builds, timing, passes, HostLock(), spread)
                return [marked(result, target) for result in results]
            finally:
                builds.abort()
                timing.give_back()

    def _devices(self, target: Target) -> list[TrackedDevice]:
        devices = of_class(self._fleet.devices(target), self._like)
        if not devices:
            raise none_like(self._like)
        return devices


def marked(result: MeasureResult, target: Target) -> MeasureResult:
    """Return a time as an upper bound if a builder of the device's host may have run while it was taken."""
    endpoint, trial = result.endpoint, result.trial
    if not trial.run_us or not target.is_cpu or endpoint is None or shares_locks(endpoint):
        return result
    about = {"bounds": 1, "separate_locks": True}
    told = (result.disturbance or Disturbance(timed=1)).model_copy(update=about)
    return replace(result, trial=replace(trial, disturbed=1.0), disturbance=told)


def alternate(builds: Builds, timing: DeviceRuns, host: HostLock) -> Iterator[MeasureResult]:
    """Builders and device share cores: hold the device first, then stop the builders while it measures."""
    timing.take()
    with host.shared() as turn:
        while builds.unfinished:
            turn.make_way(builds.pause, builds.go_on)
            ends = builds.poll(BUILD_POLL_SEC)
            yield from (end for end in ends if isinstance(end, MeasureResult))
            if ready := [end for end in ends if isinstance(end, Built)]:
                yield from _timed(ready, builds, timing)


def _timed(ready: Sequence[Built], builds: Builds, timing: DeviceRuns) -> Iterator[MeasureResult]:
    """Time candidates while the builders stand still."""
    builds.pause()
    results: list[MeasureResult] = []
    try:
        for built in ready:
            results.append(timing.measure(built))
    finally:
        builds.go_on()
        yield from results  # also what was timed before its device was lost


def alike(devices: Sequence[TrackedDevice]) -> int:
    """How many devices there are whose times compare; 0 where some do not."""
    return len(devices) if len({each.endpoint.device_class for each in devices}) == 1 else 0


def in_turn(
    builds: Builds, timing: DeviceRuns, passes: int, host: HostLock, spread: bool = False
) -> list[MeasureResult]:
    """Everything is built before the first timing, so that all candidates meet the same machine.

    With `spread` a pass is another device's than the one before, and all take part: who lies or is broken
    throws nobody out.
    """
    ends: list[Built | MeasureResult] = []
    with host.shared() as turn:
        while builds.unfinished:
            turn.make_way(builds.pause, builds.go_on)
            ends += builds.poll(BUILD_POLL_SEC)
    results = [end for end in ends if isinstance(end, MeasureResult)]
    rivals = [end for end in ends if isinstance(end, Built)]
    met: set[str] = set()
    for _ in range(passes):
        if spread:
            met.add(timing.take_another(met))
        latest = list[MeasureResult]()
        for rival in rivals:
            timing.take()
            with host.shared():
                latest.append(timing.measure(rival))
        results += latest
        if not spread:
            # What failed, or is far behind the fastest of the pass, does not win any more.
            times_us = [each.trial.latency_us or inf for each in latest]
            limit_us = min((us for us in times_us if us < inf), default=0.0) * FAR_BEHIND
            rivals = [rival for rival, us in zip(rivals, times_us, strict=True) if us <= limit_us]
    return results


def overlap(builds: Builds, timing: DeviceRuns, host: HostLock) -> Iterator[MeasureResult]:
    """The device is elsewhere: build ahead, also while waiting for it."""
    ready: deque[Built] = deque()
    with host.shared() as turn:
        while builds.unfinished:
            turn.make_way(builds.pause, builds.go_on)
            yield from _advance(builds, timing, ready)
    while ready or not timing.idle:
        yield from _advance(builds, timing, ready)


def _advance(builds: Builds, timing: DeviceRuns, ready: deque[Built]) -> Iterator[MeasureResult]:
    if ready and timing.idle:
        timing.begin(ready.popleft())
    if not builds.unfinished and not timing.idle:
        timing.wait()
    for end in builds.poll(OVERLAP_POLL_SEC if ready or not timing.idle else BUILD_POLL_SEC):
        if isinstance(end, MeasureResult):
            yield end
        else:
            ready.append(end)
    if not timing.idle and (result := timing.poll()) is not None:
        yield result
