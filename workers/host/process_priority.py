"""Raises the scheduling priority of the process that times."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from mallorn.workers.subprocesses.cgroups import cpu_quota

HIGHEST: Final = -20
# If the kernel groups processes by session, priorities only count in the group, which has its own.
GROUP: Final = Path("/proc/self/autogroup")
# Microseconds of each second that the kernel allows real-time processes; -1: no limit.
REAL_TIME: Final = Path("/proc/sys/kernel/sched_rt_runtime_us")


def raise_priority(group: Path = GROUP, real_time: Path = REAL_TIME) -> bool:
    """Raise the priority of this process and its later threads; return whether that worked.

    Timed code needs processors as soon as it is ready; with equal priority for others,
    times are wrong. The process becomes real-time unless the kernel would leave no time for
    others, or a CPU quota is set, which would not bind the process.
    """
    with suppress(OSError, ValueError):
        if int(real_time.read_text()) >= 0 and cpu_quota() is None:
            priority = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
            os.sched_setscheduler(0, os.SCHED_RR, priority)
            return True
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    except PermissionError:
        return False
    with suppress(OSError):  # this kernel does not group processes
        group.write_text(str(HIGHEST))
    return True
