"""How much memory this host has, what of it is free, and for which models it is little."""

import os
from pathlib import Path
from typing import Final

LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
USED: Final = Path("/sys/fs/cgroup/memory.current")
FACTS: Final = Path("/proc/meminfo")
COPIES_OF_ONE: Final = 3  # while it loads
# Three engines may hold a model, and a quarter is left for all else.
COPIES: Final = 12


def is_large(size_bytes: int) -> bool:
    """Whether models of this size are held one at a time here, and no more often than they must."""
    return size_bytes * COPIES > total_bytes()


def total_bytes() -> int:
    """Of this host, or of the container that it is."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(installed, int(LIMIT.read_text()))
    except (OSError, ValueError):  # there is no limit
        return installed


def free_bytes() -> int:
    """What a process could have now without others being pushed out."""
    told = dict(line.split(":") for line in FACTS.read_text().splitlines())
    free = int(told["MemAvailable"].split()[0]) * 1024
    try:
        return max(0, min(free, int(LIMIT.read_text()) - int(USED.read_text())))
    except (OSError, ValueError):  # there is no limit
        return free
