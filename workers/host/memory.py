"""How much memory this host has, and for which models it is little."""

import os
from pathlib import Path
from typing import Final

LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
# Three engines may hold a model, each with three copies while it loads, and a quarter is left for all else.
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
