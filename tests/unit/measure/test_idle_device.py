"""How long a GPU waits for builds, on a virtual clock: sixteen cores, builds of 2 s, runs of 0.2 s."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from mallorn.core.outcomes import Outcome
from mallorn.core.values.decision_log import DeviceUse, RoundStats
from mallorn.core.values.trial import Trial
from mallorn.kinds.cuda.kind import Cuda
from mallorn.searchers.space import Candidate, Sketch
from mallorn.services.planner.planner_values import ROUND_SIZE
from mallorn.workers.measure.build_candidates import BuiltCandidate
from mallorn.workers.measure.device_runs import DeviceClock, DeviceUseState
from mallorn.workers.measure.measurer_interface import MeasureInput, MeasureResult
from mallorn.workers.measure.tvm_measurer import time_during_builds
from tests.simulation.loom import Loom, Process

CORES = 16
BUILD_SEC = 2.0  # of a core: nvcc
RUN_SEC = 0.2
PROPOSE_SEC = 3.0  # and training, after a round
TRIALS = 1280
OTHERS_SEC = 1e-3  # a step of the virtual clock


class Cores:
    """Cores that all workers of the host share: a build waits for a free one."""

    def __init__(self, loom: Loom) -> None:
        self.loom, self.free_at = loom, [loom.now] * CORES

    def build(self, sec: float) -> float:
        """Return when a build ends that begins as soon as a core is free."""
        core = min(range(CORES), key=self.free_at.__getitem__)
        self.free_at[core] = max(self.loom.now, self.free_at[core]) + sec
        return self.free_at[core]


class VirtualBuilds:
    """The builds of a round, each of which ends at a known moment."""

    def __init__(self, loom: Loom, cores: Cores, build_secs: list[float]) -> None:
        self._loom = loom
        self._ends = deque(sorted((cores.build(sec), slot) for slot, sec in enumerate(build_secs)))

    @property
    def has_unfinished(self) -> bool:
        return bool(self._ends)

    def poll(self, timeout_sec: float) -> list[BuiltCandidate]:
        if not self._ends:
            return []
        first = self._ends[0][0]
        self._loom.sleep(max(OTHERS_SEC, min(timeout_sec, first - self._loom.now)))
        ready: list[BuiltCandidate] = []
        while self._ends and self._ends[0][0] <= self._loom.now:
            slot = self._ends.popleft()[1]
            place = MeasureInput(slot, Candidate("sketch", (slot,)), Sketch("sketch", "[]", ()))
            ready.append(BuiltCandidate(place, Path(f"{slot}.so"), (), BUILD_SEC * 1e3))
        return ready

    def pause(self) -> None:
        raise AssertionError("a GPU's timings need no pause")

    go_on = pause


class Gpu:
    """The one GPU: which round has it, and how long a session with it takes to begin."""

    def __init__(self, begin_sec: float) -> None:
        self.begin_sec = begin_sec
        self.holder: object = None


class VirtualRuns:
    """The runs of a round's candidates, with the clock of the product."""

    def __init__(self, loom: Loom, gpu: Gpu) -> None:
        self._loom, self._gpu = loom, gpu
        self._candidate: BuiltCandidate | None = None
        self._begun = self._until = 0.0
        self.clock = DeviceClock(lambda: loom.now)

    @property
    def is_idle(self) -> bool:
        return self._candidate is None

    def start_timing(self, candidate: BuiltCandidate) -> None:
        self._candidate, self._until = candidate, 0.0
        self.clock.enter(DeviceUseState.TAKING)
        self._try_to_run()

    def _try_to_run(self) -> None:
        if self._gpu.holder not in (None, self):
            return
        self._begun = self._loom.now + (self._gpu.begin_sec if self._gpu.holder is None else 0.0)
        self._gpu.holder = self
        self._until = self._begun + RUN_SEC
        self._note_begin()

    def _note_begin(self) -> None:
        if self.clock.state is DeviceUseState.TAKING and self._until and self._loom.now >= self._begun:
            self.clock.enter(DeviceUseState.RUNNING)

    def wait(self) -> None:
        moment = self._begun if self._loom.now < self._begun else self._until
        self._loom.sleep(max(OTHERS_SEC, moment - self._loom.now))
        self._note_begin()

    def poll(self) -> MeasureResult | None:
        candidate = self._candidate
        if candidate is not None and not self._until:
            self._try_to_run()
        if candidate is None or not self._until:
            return None
        self._note_begin()
        if self._loom.now < self._until:
            return None
        self._candidate = None
        self.clock.enter(DeviceUseState.HELD)
        trial = Trial(candidate.input.candidate, Outcome.OK, run_us=(1.0,))
        return MeasureResult(candidate.input.slot, trial)

    def release_device(self) -> None:
        self.clock.enter(DeviceUseState.AWAY)
        self._gpu.holder = None


class Quiet:
    """A host on which nobody asks others to pause."""

    @contextmanager
    def hold_shared(self) -> Iterator["Quiet"]:
        yield self

    def pause_if_requested(self, *_calls: Any) -> None:
        return


def use_of(
    workers: int, candidates: int = Cuda.round_size, begin_sec: float = 0.5, slow_build_sec: float = BUILD_SEC
) -> DeviceUse:
    """Let workers do rounds of one GPU, as many at once as there are workers. In each fourth
    round one build takes `slow_build_sec`."""
    loom, gpu = Loom(Random(0)), Gpu(begin_sec)
    cores, rounds = Cores(loom), iter(range(TRIALS // candidates))
    done: list[tuple[RoundStats, float, float]] = []

    def work() -> None:
        for number in rounds:
            start = loom.now
            loom.sleep(PROPOSE_SEC)
            last_sec = BUILD_SEC if number % 4 else slow_build_sec
            builds = VirtualBuilds(loom, cores, [BUILD_SEC] * (candidates - 1) + [last_sec])
            runs = VirtualRuns(loom, gpu)
            results = list(time_during_builds(cast(Any, builds), cast(Any, runs), cast(Any, Quiet())))
            runs.release_device()
            assert sorted(result.slot for result in results) == list(range(candidates))
            done.append((RoundStats(**asdict(runs.clock.seconds("gpu"))), start, loom.now))

    for number in range(workers):
        loom.spawn(Process(f"worker-{number}"), work)
    loom.run(1e6)
    assert loom.broken is None
    assert len(done) == TRIALS // candidates
    use = DeviceUse.of_rounds(done)
    assert use is not None
    assert use.device_sec == pytest.approx(len(done) * candidates * RUN_SEC, rel=0.05)
    return use


def test_one_worker_leaves_the_gpu_idle_and_three_do_not() -> None:
    shares = [use_of(workers).idle_share for workers in (1, 2, Cuda.rounds_per_device)]
    assert shares[0] > 0.4
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] <= 0.1


def test_small_rounds_lose_the_time_in_which_a_session_begins() -> None:
    """With rounds of a CPU's size the GPU is idle more often, whatever the number of workers."""
    small, usual = (use_of(Cuda.rounds_per_device, size).idle_share for size in (ROUND_SIZE, Cuda.round_size))
    assert small > 1.5 * usual


def test_a_round_that_waits_for_one_slow_build_lets_others_have_the_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = use_of(Cuda.rounds_per_device, slow_build_sec=25.0)
    monkeypatch.setattr("mallorn.workers.measure.tvm_measurer.RELEASE_SEC", float("inf"))
    held = use_of(Cuda.rounds_per_device, slow_build_sec=25.0)
    assert released.build_wait_sec < held.build_wait_sec / 3
    assert released.seconds < 0.9 * held.seconds


def test_pauses_of_a_job_are_no_idle_time_and_waits_between_rounds_are() -> None:
    busy = RoundStats(device="gpu", device_sec=10.0)
    rounds = [(busy, 0.0, 10.0), (busy, 12.0, 22.0), (busy, 1000.0, 1010.0), (RoundStats(), 0.0, 500.0)]
    use = DeviceUse.of_rounds(rounds)
    assert use is not None
    assert (use.seconds, use.devices, use.idle_share) == (32.0, 1, pytest.approx(2 / 32))
    assert DeviceUse.of_rounds([(RoundStats(), 0.0, 1.0)]) is None


def test_rounds_on_two_devices_share_their_time() -> None:
    rounds = [(RoundStats(device=name, device_sec=5.0), 0.0, 10.0) for name in ("a", "b")]
    use = DeviceUse.of_rounds(rounds)
    assert use is not None
    assert (use.devices, use.idle_share) == (2, 0.5)
