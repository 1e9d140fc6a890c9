"""Whether the kernel ended processes beside this one for want of memory, by its own count."""

from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

from workers.children.cgroups import ancestors

COUNT: Final = "oom_kill "
FILES: Final = ("memory.events", "memory.oom_control")


def killed_for_memory() -> int:
    """How many processes of our control group were ended so; 0 where nobody counts them."""
    with suppress(OSError, ValueError, StopIteration):
        lines = _counter().read_text().splitlines()
        return int(next(line.removeprefix(COUNT) for line in lines if line.startswith(COUNT)))
    return 0


@lru_cache(maxsize=1)
def _counter() -> Path:
    """Raises StopIteration where there is none."""
    files = (group / name for group in ancestors("memory") for name in FILES)
    return next(file for file in files if file.is_file())
