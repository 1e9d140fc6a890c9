"""CPU time that a process used and CPU time that it waited for, as the kernel counts it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

PROC: Final = Path("/proc")


def used_cpu_sec(pid: int, proc: Path = PROC) -> float:
    """Return the CPU seconds of a process and its reaped children; 0 if the process is gone."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """Seconds that a process's threads ran and waited (or were throttled)."""

    ran_sec: float = 0.0
    waited_sec: float = 0.0

    @classmethod
    def of(cls, pid: int | None, proc: Path = PROC) -> Self:
        """Read the seconds up to now; zeros if the process is gone or the kernel does not count."""
        try:
            threads = [task.read_text().split() for task in (proc / str(pid) / "task").glob("*/schedstat")]
        except OSError:
            return cls()
        return cls(*(sum(int(values[column]) for values in threads) / 1e9 for column in (0, 1)))

    def waited_more_than_ran(self, reference: "ProcessorShare") -> bool:
        return self.waited_sec - reference.waited_sec > self.ran_sec - reference.ran_sec
