"""Reads how long this process's threads waited for a processor, and how many others compete for one.

The kernel counts the wait of each thread precisely enough for intervals of ten milliseconds. The
time that other programs used is counted in hundredths of a second, and is short while they wait.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
RUNNING: Final = "R"


@dataclass(frozen=True, slots=True)
class ContentionReading:
    """The values of the kernel's counters at one time."""

    clock_sec: float
    waited_sec: dict[str, float]  # by thread: seconds in which it was ready to run but did not
    rivals: int  # threads of other processes that run or are ready to

    @classmethod
    def look(cls, proc: Path = PROC) -> "ContentionReading":
        """Read the counters; those of threads are missing if the kernel lacks CONFIG_SCHED_INFO."""
        waited, running = {}, 0
        for thread in (proc / "self" / "task").iterdir():
            try:
                waited_sec = int((thread / "schedstat").read_bytes().split()[1]) / 1e9
                state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, IndexError):  # the thread ended, or the kernel does not count
                continue
            waited[thread.name] = waited_sec
            running += state == RUNNING
        everybody = int((proc / "loadavg").read_text().split()[3].partition("/")[0])
        return cls(time.monotonic(), waited, max(0, everybody - max(1, running)))

    def waited_since(self, before: "ContentionReading") -> float | None:
        """Return the share of the time since `before` that the longest waiting thread waited.

        None if it is not counted. Threads that compute together are as late as the latest of them.
        Throttling by a quota counts as waiting.
        """
        if not self.waited_sec:
            return None
        waited = (sec - before.waited_sec.get(name, 0.0) for name, sec in self.waited_sec.items())
        return min(1.0, max(waited) / max(1e-9, self.clock_sec - before.clock_sec))
