"""What a process had of the processors that it wanted, as the kernel counts it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

PROC: Final = Path("/proc")


def processor_sec(pid: int, proc: Path = PROC) -> float:
    """What a process and those that it waited for took of the processors; nothing of one that is gone."""
    try:
        told = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, told[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """Of all its threads. A quota's throttling is waiting, too."""

    ran_sec: float = 0.0
    waited_sec: float = 0.0

    @classmethod
    def of(cls, pid: int | None, proc: Path = PROC) -> Self:
        """Up to now; nothing of a process that is gone, or where the kernel does not count."""
        try:
            threads = [task.read_text().split() for task in (proc / str(pid) / "task").glob("*/schedstat")]
        except OSError:
            return cls()
        return cls(*(sum(int(counted[at]) for counted in threads) / 1e9 for at in (0, 1)))

    def is_small_since(self, before: "ProcessorShare") -> bool:
        """Whether it waited longer than it ran."""
        return self.waited_sec - before.waited_sec > self.ran_sec - before.ran_sec
