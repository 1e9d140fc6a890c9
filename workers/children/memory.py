"""Whether the kernel ended processes beside this one for want of memory, by its own count."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

GROUPS: Final = Path("/proc/self/cgroup")
MOUNT: Final = Path("/sys/fs/cgroup")
COUNT: Final = "oom_kill "


def killed_for_memory() -> int:
    """How many processes of our control group were ended so; 0 where nobody counts them."""
    with suppress(OSError, ValueError, StopIteration):
        lines = _counter().read_text().splitlines()
        return int(next(line.removeprefix(COUNT) for line in lines if line.startswith(COUNT)))
    return 0


@lru_cache(maxsize=1)
def _counter() -> Path:
    """Raises StopIteration where there is none."""
    return next(file for file in _places() if file.is_file())


def _places() -> Iterator[Path]:
    for line in GROUPS.read_text().splitlines():
        number, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            place, name = MOUNT / "memory", "memory.oom_control"
        elif number == "0":
            place, name = MOUNT, "memory.events"
        else:
            continue
        # A container may see its own group as the root of the mount, and its host's path to it.
        yield from (place / group.lstrip("/") / name, place / name)
