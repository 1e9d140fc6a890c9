"""The rank of a process beside all others of its host."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.subprocesses.cgroups import cpu_quota

HIGHEST: Final = -20
# Where the kernel groups processes by their session, ranks count inside a group alone: it has one of its own.
GROUP: Final = Path("/proc/self/autogroup")
# What of each second the kernel lets real-time processes have at most, in microseconds; -1: all of it.
REAL_TIME: Final = Path("/proc/sys/kernel/sched_rt_runtime_us")


def raise_priority(group: Path = GROUP, real_time: Path = REAL_TIME) -> bool:
    """Have this process, and the threads it starts from now on, go before others; whether it may.

    What is timed is given the processors that it asks for: beside others of its rank no time is true.
    """
    if _at_once(real_time):
        return True
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    except PermissionError:
        return False
    with suppress(OSError):  # such groups are not made here
        group.write_text(str(HIGHEST))
    return True


def _at_once(real_time: Path) -> bool:
    """Whoever wakes up beside it waits. The kernel keeps a share of each second for all others, and lets a
    quota not bind such processes: without the one and with the other it is no rank for us."""
    try:
        if int(real_time.read_text()) < 0 or cpu_quota() is not None:
            return False
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
    except (OSError, ValueError):
        return False
    return True
