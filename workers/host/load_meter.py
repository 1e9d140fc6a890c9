"""How busy this host was with anything but what we timed, as the kernel counts it.

The load average is of no use here: it still has our own builders in it, a minute after they stopped.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
QUIET_CORES: Final = 0.25  # what a service does that waits
QUIET_SHARE: Final = 0.02  # of many cores: every system does something
QUIET_STOLEN: Final = 0.05
QUIET_WAITING: Final = 0.25  # threads of one engine wait for each other's cores now and then
LOOK_SEC: Final = 1.0


@dataclass(frozen=True, slots=True)
class Load:
    """What others used of the host during a period."""

    cores: int
    others_cores: float
    stolen: float  # share of the processors' time that another virtual machine had
    waiting: float  # share of the time in which somebody waited for a processor; 0 where it is not counted
    gpu_share: float = 0.0  # of its speed that a GPU lost
    gpu_words: tuple[str, ...] = ()  # to what

    @property
    def share(self) -> float:
        """The share of the host, and of its GPU, that was not ours."""
        return self.others_cores / self.cores + self.stolen + self.gpu_share

    def words(self) -> list[str]:
        """What disturbed the timing, in words; empty for a quiet host."""
        told = [*self.gpu_words]
        if self.others_cores > max(QUIET_CORES, QUIET_SHARE * self.cores):
            told.append(f"other programs used {self.others_cores:.1f} of {self.cores} cores")
        if self.stolen > QUIET_STOLEN:
            told.append(f"other virtual machines had {self.stolen:.0%} of the processors' time")
        if self.waiting > QUIET_WAITING and not told:
            told.append(f"programs waited for a processor {self.waiting:.0%} of the time")
        return told


@dataclass(frozen=True, slots=True)
class _Counters:
    clock_sec: float
    busy: int
    stolen: int
    total: int
    ours: int
    waited_sec: float


class LoadMeter:
    """Measures the load since the last look; `ours` are processes that do not count as load."""

    def __init__(self, ours: Callable[[], Sequence[int]], proc: Path = PROC) -> None:
        self._ours = ours
        self._proc = proc
        self._last = self._read()

    def look(self) -> Load:
        """The load since the last look."""
        before, self._last = self._last, self._read()
        cores = os.cpu_count() or 1
        ticks = max(1, self._last.total - before.total)
        others = max(0, (self._last.busy - before.busy) - (self._last.ours - before.ours))
        elapsed_sec = max(1e-9, self._last.clock_sec - before.clock_sec)
        return Load(
            cores,
            others * cores / ticks,
            (self._last.stolen - before.stolen) / ticks,
            (self._last.waited_sec - before.waited_sec) / elapsed_sec,
        )

    def wait_for_quiet(self, patience_sec: float) -> None:
        """Return once the host is quiet or the time is over."""
        wait_for_quiet(self.look, patience_sec)

    def _read(self) -> _Counters:
        ticks = (self._proc / "stat").read_text().splitlines()[0].split()[1:9]
        user, nice, system, idle, waits, *served, stolen = map(int, ticks)  # served: irq and softirq
        busy = user + nice + system + sum(served)
        ours = sum(_ticks(self._proc / str(pid) / "stat") for pid in (os.getpid(), *self._ours()))
        total = busy + idle + waits + stolen
        try:
            pressure = (self._proc / "pressure" / "cpu").read_text()
            waited_sec = int(pressure.splitlines()[0].rpartition("total=")[2]) / 1e6
        except OSError:  # before 4.20 it is not there, and where it is switched off it cannot be read
            waited_sec = 0.0
        return _Counters(time.monotonic(), busy, stolen, total, ours, waited_sec)


def wait_for_quiet(look: Callable[[], Load], patience_sec: float) -> None:
    """Look now and then, until there is nothing to tell or the time is over."""
    until_sec = time.monotonic() + patience_sec
    look()
    while time.monotonic() < until_sec:
        time.sleep(LOOK_SEC)
        if not look().words():
            return


def _ticks(stat: Path) -> int:
    """What a process used with all its threads; one that is gone used nothing more."""
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])
