"""Total and free memory of this host, and whether a model is large for it."""

import os
from typing import Final

from mallorn.workers.subprocesses.cgroups import memory_left, memory_limit

COPIES_OF_ONE: Final = 3  # of a model in memory while it loads
# Three engines may hold COPIES_OF_ONE copies each, and a quarter of memory is left for all else.
COPIES: Final = 12


def is_large(size_bytes: int) -> bool:
    """Return whether models of this size may be held only one at a time on this host."""
    return size_bytes * COPIES > total_bytes()


def total_bytes() -> int:
    """Return this host's memory in bytes, or its container's limit if that is lower."""
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit()
    return installed if limit is None else min(installed, limit)


def free_bytes() -> int:
    """Return the bytes that a process could allocate now without swapping out others."""
    import psutil  # late: commands import this module before they report missing packages

    free = psutil.virtual_memory().available
    cgroup_left = memory_left()
    return free if cgroup_left is None else max(0, min(free, cgroup_left))
