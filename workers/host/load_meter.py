"""Measures from the kernel's counters how other work on this host disturbs a timing.

`LoadMeter` measures the load of other programs in intervals of seconds. The kernel's load
average does not suit: it includes this worker's builders for a minute after they stopped.

`ContentionReading` reads how long this process's threads waited for a processor, and how
many others compete for one. The kernel counts the wait of each thread precisely enough for
intervals of ten milliseconds. The time that other programs used is counted in hundredths of
a second, and is short while they wait.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
QUIET_CORES: Final = 0.25  # cores that idle services use
QUIET_SHARE: Final = 0.02  # of many cores: every system does some work
QUIET_STOLEN: Final = 0.05
QUIET_WAITING: Final = 0.25  # threads of one engine wait for each other's cores now and then
LOOK_SEC: Final = 1.0
RUNNING: Final = "R"


@dataclass(frozen=True, slots=True)
class Load:
    """The load that other programs put on the host between two readings."""

    cores: int
    others_cores: float
    stolen: float  # share of the processors' time that other virtual machines had
    waiting: float  # share of the time in which some thread waited for a processor; 0 if not counted
    gpu_share: float = 0.0  # share of its speed that a GPU lost
    gpu_words: tuple[str, ...] = ()  # the reasons for that

    @property
    def share(self) -> float:
        """The share of the host and of its GPU that other programs used."""
        return self.others_cores / self.cores + self.stolen + self.gpu_share

    def disturbance_phrases(self) -> list[str]:
        """Return phrases about what disturbed a timing; empty if the host was quiet."""
        reasons = [*self.gpu_words]
        if self.others_cores > max(QUIET_CORES, QUIET_SHARE * self.cores):
            reasons.append(f"other programs used {self.others_cores:.1f} of {self.cores} cores")
        if self.stolen > QUIET_STOLEN:
            reasons.append(f"other virtual machines had {self.stolen:.0%} of the processors' time")
        if self.waiting > QUIET_WAITING and not reasons:
            reasons.append(f"programs waited for a processor {self.waiting:.0%} of the time")
        return reasons


@dataclass(frozen=True, slots=True)
class _Counters:
    clock_sec: float
    busy: int
    stolen: int
    total: int
    ours: int
    waited_sec: float


class LoadMeter:
    """Measures the load of programs other than this worker's between calls of `look`;
    `ours` returns the pids of this worker's processes."""

    def __init__(self, ours: Callable[[], Sequence[int]], proc: Path = PROC) -> None:
        self._ours = ours
        self._proc = proc
        self._last = self._read()

    def read_load(self) -> Load:
        previous, self._last = self._last, self._read()
        cores = os.cpu_count() or 1
        ticks = max(1, self._last.total - previous.total)
        other_ticks = max(0, (self._last.busy - previous.busy) - (self._last.ours - previous.ours))
        elapsed_sec = max(1e-9, self._last.clock_sec - previous.clock_sec)
        return Load(
            cores,
            other_ticks * cores / ticks,
            (self._last.stolen - previous.stolen) / ticks,
            (self._last.waited_sec - previous.waited_sec) / elapsed_sec,
        )

    def _read(self) -> _Counters:
        ticks = (self._proc / "stat").read_text().splitlines()[0].split()[1:9]
        user, nice, system, idle, waits, *served, stolen = map(int, ticks)  # served: irq and softirq
        busy = user + nice + system + sum(served)
        our_ticks = sum(_read_cpu_ticks(self._proc / f"{pid}/stat") for pid in (os.getpid(), *self._ours()))
        total = busy + idle + waits + stolen
        try:
            pressure = (self._proc / "pressure" / "cpu").read_text()
            waited_sec = int(pressure.splitlines()[0].rpartition("total=")[2]) / 1e6
        except OSError:  # missing before Linux 4.20, and unreadable if switched off
            waited_sec = 0.0
        return _Counters(time.monotonic(), busy, stolen, total, our_ticks, waited_sec)


def wait_for_quiet(read_load: Callable[[], Load], patience_sec: float) -> None:
    """Read the load every second until it is quiet, at most for `patience_sec`."""
    until_sec = time.monotonic() + patience_sec
    read_load()
    while time.monotonic() < until_sec:
        time.sleep(LOOK_SEC)
        if not read_load().disturbance_phrases():
            return


def _read_cpu_ticks(stat: Path) -> int:
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


@dataclass(frozen=True, slots=True)
class ContentionReading:
    """The kernel's counters of competition for processors, read at one time."""

    clock_sec: float
    waited_sec: dict[str, float]  # by thread: seconds in which it was ready to run but did not
    rivals: int  # threads of other processes that run or are ready to

    @classmethod
    def read_counters(cls, proc: Path = PROC) -> "ContentionReading":
        """Read the counters; without CONFIG_SCHED_INFO, those of threads are missing."""
        waited, running = {}, 0
        for thread in (proc / "self" / "task").iterdir():
            try:
                waited_sec = int((thread / "schedstat").read_bytes().split()[1]) / 1e9
                state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, IndexError):  # the thread ended, or the kernel does not count
                continue
            waited[thread.name] = waited_sec
            running += state == RUNNING
        runnable = int((proc / "loadavg").read_text().split()[3].partition("/")[0])
        return cls(time.monotonic(), waited, max(0, runnable - max(1, running)))

    def waited_since(self, previous: "ContentionReading") -> float | None:
        """Return how long the thread that waited longest for a CPU did so, as a share of
        the time since `previous`; None if the kernel does not count it. The longest wait
        matters because threads that compute together end with the latest of them.
        Throttling by a quota counts as waiting."""
        if not self.waited_sec:
            return None
        waited = (sec - previous.waited_sec.get(name, 0.0) for name, sec in self.waited_sec.items())
        return min(1.0, max(waited) / max(1e-9, self.clock_sec - previous.clock_sec))
