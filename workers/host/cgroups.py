"""What the control groups of this process allow it: the least that it or any group above it was given."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from workers.children.cgroups import ancestors

# Of version 2, then of version 1.
LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
USED: Final = ("memory.current", "memory.usage_in_bytes")
CACHED: Final = frozenset({"inactive_file", "total_inactive_file"})


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


def _sum(file: Path, names: frozenset[str]) -> int:
    """What a file counts under these names; one of each version has one of them."""
    words = _words(file)
    return sum(int(words[at + 1]) for at, name in enumerate(words) if name in names)


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
