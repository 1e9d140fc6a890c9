"""Times the candidates of a round, one at a time, on a device that the round has leased."""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf, prod
from typing import Final

from mallorn.core.errors import HostFault, MallornError, Unavailable
from mallorn.core.job_options import EvaluatorOptions, JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.machine import element_bytes
from mallorn.core.values.trial import Trial
from mallorn.workers.device.device_class import DeviceClass, Endpoint
from mallorn.workers.interfaces.device_runner import DEVICE_WAIT_SEC, LibraryRun, Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.measure.build_candidates import Builds, BuiltCandidate, shorten
from mallorn.workers.measure.measurer_interface import DeviceSeconds, MeasureResult, Program
from mallorn.workers.measure.run_timeout_and_retakes import Retakes
from mallorn.workers.subprocesses.errors import HOSTS_DOING, ChildError, ChildNotStarted, ChildTimeout
from mallorn.workers.subprocesses.pending_call import PendingCall

# Length of the part of a program's key that is written to the device's log.
KEY_CHARS: Final = 16
# A short timing shows whether a known time still holds.
MOMENT: Final = EvaluatorOptions(number=1, min_repeat_ms=20)
DRIFT: Final = "/drift"
WAIT_SEC: Final = 10.0  # for a quiet moment, before the round is given back
TAKE_GAPS: Final = "leave --wait-for-quiet out to time between other programs' work"
# An input with this share of all bytes takes most of the time. Weights of 4 bits have 0.79.
# `TargetKind.cache_states` names the share: times under another share do not compare.
DOMINATES: Final = 0.75
# A time that changes by a larger share has drifted: consecutive timings of a kernel agree better.
LARGEST_DRIFT: Final = 0.06
# If the means of one timing differ by this factor, known times are checked for drift at once.
SURPRISE: Final = 1.15


class DeviceUseState(StrEnum):
    """State of a round's device; the values name fields of DeviceSeconds."""

    AWAY = "away_sec"  # the round neither holds a device nor waits for one
    TAKING = "device_wait_sec"
    RUNNING = "device_sec"
    HELD = "build_wait_sec"


class DeviceClock:
    """Adds up the seconds that a round's device spends in each state."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since_sec = clock, clock()
        self._seconds = dict.fromkeys(DeviceUseState, 0.0)
        self.state = DeviceUseState.AWAY

    def enter(self, state: DeviceUseState) -> None:
        now_sec = self._clock()
        self._seconds[self.state] += now_sec - self._since_sec
        self._since_sec, self.state = now_sec, state

    def idle_sec(self) -> float:
        """Return for how long the device has been held without a candidate to run."""
        return self._clock() - self._since_sec if self.state is DeviceUseState.HELD else 0.0

    def seconds(self, device: str) -> DeviceSeconds:
        self.enter(self.state)
        totals = {str(state): round(sec, 3) for state, sec in self._seconds.items()}
        del totals[DeviceUseState.AWAY]
        return DeviceSeconds(device, **totals)


@dataclass(eq=False)
class DeviceRuns:
    """Times candidates by the runner, which holds a device; `poll` never waits."""

    runner: Runner
    tracker: str
    target: Target
    program: Program
    options: JobOptions
    timeout_sec: float
    best_us: float | None = None
    purpose: str = ""  # marks repeats in the device's own log
    keeps_best: bool = False  # the fastest time so far is `best_us` for later candidates
    like: DeviceClass | None = None

    def __post_init__(self) -> None:
        self._retakes = Retakes(self.options.evaluator, WAIT_SEC if self.options.wait_for_quiet else 0.0)
        self.fastest: tuple[BuiltCandidate, float] | None = None  # of the undisturbed times taken here
        self.latest: tuple[BuiltCandidate, float] | None = None
        self._is_drift_check = False
        self._candidate: BuiltCandidate | None = None
        self._taking: PendingCall[Endpoint] | None = None
        self._running: PendingCall[LibraryRun] | None = None
        self._endpoint: Endpoint | None = None
        self.clock = DeviceClock()

    @property
    def device_seconds(self) -> DeviceSeconds:
        return self.clock.seconds("" if self._endpoint is None else self._endpoint.name)

    @property
    def is_idle(self) -> bool:
        return self._taking is None and self._running is None

    def take_device(self) -> None:
        """Wait until this round has the device. Raises NoDevice if none is registered,
        Unavailable if all stay busy or cannot be reached."""
        self._take(hold=False)
        while self._taking is not None:
            self.wait()
            self.poll()

    def take_another(self, used_devices: Collection[str]) -> str:
        """Release the device and take one that is not in `used_devices`, if one is free.
        Return the name of the device that is held then."""
        for _ in range(len(used_devices) + 1):
            self.release_device()  # the tracker offers the other free devices first
            self.take_device()
            if self._endpoint is not None and self._endpoint.name not in used_devices:
                break
        return self._endpoint.name if self._endpoint is not None else ""

    def measure(self, candidate: BuiltCandidate) -> MeasureResult:
        self.start_timing(candidate)
        while (result := self.poll()) is None:
            self.wait()
        return result

    def measure_again(self, candidate: BuiltCandidate) -> MeasureResult:
        """Time a candidate briefly once more, to see whether its speed has changed."""
        self._is_drift_check = True
        try:
            return self.measure(candidate)
        finally:
            self._is_drift_check = False

    def start_timing(self, candidate: BuiltCandidate) -> None:
        """Start timing a candidate; first take a device if the last candidate lost it."""
        self._candidate = candidate
        self._take(hold=True)

    def poll(self) -> MeasureResult | None:
        """Return the result of the candidate on the device; None while there is none. A
        failed run counts against the candidate, unless the host killed the runner process.

        Raises HostFault or Unavailable if no device could be taken or the job waits for a
        quiet host.
        """
        try:
            if self._taking is not None and self._taking.poll():
                self._endpoint, self._taking = self._taking.result(), None
                self.clock.enter(DeviceUseState.HELD if self._candidate is None else DeviceUseState.RUNNING)
                if self._candidate is not None:
                    self._running = self._start_run(self._candidate)
            elif self._running is not None and self._candidate is not None and self._running.poll():
                return self._convert_finished_run(self._candidate, self._running.result())
            return None
        except ChildError as error:
            candidate = self._candidate
            if candidate is None or self._running is None:
                self._taking = self._candidate = None
                self.clock.enter(DeviceUseState.AWAY)
                kind = HostFault if isinstance(error, ChildNotStarted) else Unavailable
                raise kind(f"no device could be taken: {error.message}", hint="mallorn check") from error
            # The device itself ends slow candidates: a timeout means that it failed.
            is_lost = isinstance(error, (*HOSTS_DOING, ChildTimeout))
            outcome = Outcome.WORKER_LOST if is_lost else Outcome.RUN_ERROR
            return self._convert_finished_run(candidate, LibraryRun(outcome, error=error.message))

    def wait(self) -> None:
        """Sleep until `poll` may have news or the pending call is overdue."""
        pending = self._taking or self._running
        if pending is not None:
            self.runner.wait(pending.left_sec)

    def release_device(self) -> None:
        """Release the device; kill the session if a candidate is still running in it."""
        self.clock.enter(DeviceUseState.AWAY)
        if not self.runner.alive:
            return
        if self.is_idle:
            self.runner.release_devices()
        else:
            self.runner.kill()

    def _take(self, hold: bool) -> None:
        self.clock.enter(DeviceUseState.TAKING)
        self._taking = self.runner.take_device.begin(
            self.tracker, self.target.text, DEVICE_WAIT_SEC, hold, self.like
        )

    def _start_run(self, candidate: BuiltCandidate) -> PendingCall[LibraryRun]:
        mark = DRIFT if self._is_drift_check else self.purpose  # for the device's log
        args = self.program.args.with_tensors(candidate.args)
        flush_l2 = "on" if must_flush_cache(self.options.evaluator, args, self.target) else "off"
        evaluator = MOMENT if self._is_drift_check else self.options.evaluator
        return self.runner.time_candidate.begin(
            tracker=self.tracker,
            target=self.target.text,
            artifact=str(candidate.artifact),
            args=args,
            evaluator=evaluator.model_copy(update={"flush_l2": flush_l2}),
            stopping="fixed" if self._is_drift_check else self.options.stopping,
            candidate_key=f"{self.program.key[:KEY_CHARS]}/{candidate.input.candidate.key}{mark}",
            timeout_sec=self.timeout_sec,
            patience_sec=self._retakes.left_sec(),
            best_us=self.best_us,
        )

    def _convert_finished_run(self, candidate: BuiltCandidate, run: LibraryRun) -> MeasureResult:
        self._candidate = self._running = None
        self.clock.enter(DeviceUseState.HELD)
        self._retakes.charge_lost_time(run.disturbance.repeated_sec if run.disturbance else 0.0)
        trial = Trial(
            candidate.input.candidate,
            run.outcome,
            build_ms=candidate.build_ms,
            run_us=run.run_us,
            run_ms=run.run_ms,
            error=shorten(run.error),
            disturbed=run.disturbed,
        )
        if trial.is_bound and self.options.wait_for_quiet and run.disturbance is not None:
            raise Unavailable(f"waits for a quiet host: {run.disturbance.description}", hint=TAKE_GAPS)
        if self.keeps_best and trial.time_us is not None and not self._is_drift_check:
            self.best_us = min(trial.time_us, self.best_us or inf)
            kept_ms = 0.0 if run.disturbance is None else run.disturbance.valid_sec * 1e3
            if kept_ms >= MOMENT.min_repeat_ms:
                self.latest = candidate, trial.time_us
                self.fastest = min(self.fastest or self.latest, self.latest, key=lambda entry: entry[1])
        return MeasureResult(candidate.input.slot, trial, self._endpoint, run.disturbance)


def must_flush_cache(evaluator: EvaluatorOptions, args: Arguments, target: Target) -> bool:
    """Return whether the cache is emptied before each run with these arguments.

    With `auto` it is emptied if one input is most of what the program reads and writes.
    Repeated runs would read it at least partly from the cache; a model, from memory.
    """
    if not target.hardware.empties_cache or evaluator.flush_l2 != "auto":
        return target.hardware.empties_cache and evaluator.flush_l2 == "on"
    sizes = [prod(shape) * element_bytes(dtype) for _, dtype, shape in args.args]
    inputs = (size for index, size in enumerate(sizes) if index not in args.outputs)
    return max(inputs, default=0) >= DOMINATES * sum(sizes)


class TimingDriftDetector:
    """Times the round's fastest and latest candidates again, to notice that the device's
    speed changed. If both are then slower or faster than before, all times since the last
    check are yielded again as upper bounds. If only one is, that proves nothing: a kernel's
    speed may vary between processes."""

    def __init__(self, timing: DeviceRuns, builds: Builds) -> None:
        self._timing = timing
        self._builds = builds
        self._unchecked: list[MeasureResult] = []

    def yield_with_drift_checks(self, results: Iterator[MeasureResult]) -> Iterator[MeasureResult]:
        """Yield each result. If the device's speed then turns out to have changed, yield
        the results since the last check again, as upper bounds."""
        for result in results:
            yield result
            if result.trial.time_us is not None:
                self._unchecked.append(result)
                run_us = result.trial.run_us
                if max(run_us) > SURPRISE * min(run_us) and self._timing.is_idle:
                    yield from self._recheck_references()
        yield from self._recheck_references()

    def _recheck_references(self) -> Iterator[MeasureResult]:
        """Time both references again; if both changed, yield results as upper bounds."""
        results, self._unchecked = self._unchecked, []
        if not results or (share := self._drift_of(self._timing.fastest)) <= LARGEST_DRIFT:
            return
        if (share := min(share, self._drift_of(self._timing.latest))) <= LARGEST_DRIFT:
            return
        for result in results:
            disturbance = result.disturbance or Disturbance(candidates=1)
            disturbance = disturbance.model_copy(update={"upper_bounds": 1})
            yield replace(result, trial=replace(result.trial, disturbed=share), disturbance=disturbance)

    def _drift_of(self, reference: tuple[BuiltCandidate, float] | None) -> float:
        """Time a candidate again; return the relative change, 0 if it cannot be timed."""
        if reference is None:
            return 0.0
        candidate, known_us = reference
        self._builds.pause()
        try:
            now_us = self._timing.measure_again(candidate).trial.time_us
        except MallornError:  # the device is lost: its next use reports it
            return 0.0
        finally:
            self._builds.go_on()
        return 0.0 if now_us is None else 1 - min(now_us, known_us) / max(now_us, known_us)
