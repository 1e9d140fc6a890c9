"""What the control groups of this process allow it: the least that it or any group above it was given."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from workers.children.cgroups import ancestors

# Of version 2, then of version 1.
LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
USED: Final = ("memory.current", "memory.usage_in_bytes")
CACHED: Final = {"inactive_file": 1, "total_inactive_file": 1}
THROTTLED: Final = {"throttled_usec": 1e-6, "throttled_time": 1e-9}


def cpu_quota() -> float | None:
    """How many processors are paid for; None where there is no limit."""
    return min((found for group in ancestors("cpu") for found in _processors(group)), default=None)


def memory_limit() -> int | None:
    """In bytes; None where there is none."""
    return min((found for group in ancestors("memory") for found in _numbers(group, LIMITS)), default=None)


def memory_left() -> int | None:
    """What is left of the limit that is nearest to being reached, files that are merely cached aside."""
    left = (
        limit - used + _sum(group / "memory.stat", CACHED)
        for group in ancestors("memory")
        for limit, used in zip(_numbers(group, LIMITS), _numbers(group, USED), strict=False)
    )
    return min((int(found) for found in left), default=None)


def throttled_sec() -> float:
    """For how long quotas have held us and those beside us back so far, on all processors together."""
    return sum(_sum(file, THROTTLED) for file in _counters())


@lru_cache(maxsize=1)
def _counters() -> tuple[Path, ...]:
    files = (group / "cpu.stat" for group in ancestors("cpu"))
    return tuple(file for file in files if file.is_file())


def _sum(file: Path, units: Mapping[str, float]) -> float:
    """What a file counts under these names, in our unit; a file of one version has one of them."""
    words = _words(file)
    return sum(int(words[at + 1]) * units[name] for at, name in enumerate(words) if name in units)


def _processors(group: Path) -> Iterator[float]:
    words = [
        word for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us") for word in _words(group / name)
    ]
    if len(words) == 2 and words[0].isdigit():  # else "max" or "-1"
        yield int(words[0]) / int(words[1])


def _numbers(group: Path, names: tuple[str, ...]) -> list[int]:
    return [int(word) for name in names for word in _words(group / name) if word.isdigit()]


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
