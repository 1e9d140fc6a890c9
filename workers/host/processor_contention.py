"""How long the threads of this process waited for a processor, and how many others compete for one.

Counted by the kernel for each thread, so that a moment of ten milliseconds tells; what others used is counted
in hundredths of a second, and is little where they were kept waiting for us.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
RUNNING: Final = "R"


@dataclass(frozen=True, slots=True)
class ContentionReading:
    """A look at the counters."""

    clock_sec: float
    waited_sec: dict[str, float]  # by thread: it was ready to run and did not
    rivals: int  # threads of others that run, or are ready to

    @classmethod
    def look(cls, proc: Path = PROC) -> "ContentionReading":
        """The counters now; of no thread where the kernel does not count (it lacks CONFIG_SCHED_INFO)."""
        waited, running = {}, 0
        for thread in (proc / "self" / "task").iterdir():
            try:
                waited_sec = int((thread / "schedstat").read_bytes().split()[1]) / 1e9
                state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
            except (OSError, IndexError):  # it ended, or nothing is counted
                continue
            waited[thread.name] = waited_sec
            running += state == RUNNING
        everybody = int((proc / "loadavg").read_text().split()[3].partition("/")[0])
        return cls(time.monotonic(), waited, max(0, everybody - max(1, running)))

    def waited_since(self, before: "ContentionReading") -> float | None:
        """The share of the time since then that the thread which waited longest did; None: not counted.

        Threads that compute together are as late as the latest of them. A quota's throttling is such a wait.
        """
        if not self.waited_sec:
            return None
        waited = (sec - before.waited_sec.get(name, 0.0) for name, sec in self.waited_sec.items())
        return min(1.0, max(waited) / max(1e-9, self.clock_sec - before.clock_sec))
