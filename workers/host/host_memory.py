"""How much memory this host has, what of it is free, and for which models it is little."""

import os
from typing import Final

from workers.subprocesses.cgroups import memory_left, memory_limit

COPIES_OF_ONE: Final = 3  # while it loads
# Three engines may hold a model, and a quarter is left for all else.
COPIES: Final = 12


def is_large(size_bytes: int) -> bool:
    """Whether models of this size are held one at a time here, and no more often than they must."""
    return size_bytes * COPIES > total_bytes()


def total_bytes() -> int:
    """Of this host, or of the container that it is."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit()
    return installed if limit is None else min(installed, limit)


def free_bytes() -> int:
    """What a process could have now without others being pushed out."""
    import psutil  # late: commands read this file before they say what is not installed

    free = psutil.virtual_memory().available
    left = memory_left()
    return free if left is None else max(0, min(free, left))
