"""The rank of a process beside all others of its host."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

HIGHEST: Final = -20
# Where the kernel groups processes by their session, ranks count inside a group alone: it has one of its own.
GROUP: Final = Path("/proc/self/autogroup")


def raise_priority(group: Path = GROUP) -> bool:
    """Have this process, and the threads it starts from now on, go before others; whether it may.

    What is timed is given the processors that it asks for: beside others of its rank no time is true.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    except PermissionError:
        return False
    with suppress(OSError):  # such groups are not made here
        group.write_text(str(HIGHEST))
    return True
