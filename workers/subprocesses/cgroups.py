"""Control groups that this process is in, of either version, their limits, and what they have used."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

COUNT: Final = "oom_kill "
FILES: Final = ("memory.events", "memory.oom_control")
GROUPS: Final = Path("/proc/self/cgroup")
MOUNTS: Final = Path("/proc/self/mountinfo")
# Of version 2, then of version 1.
LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
USED: Final = ("memory.current", "memory.usage_in_bytes")
CACHED: Final = frozenset({"inactive_file", "total_inactive_file"})


def ancestors(controller: str) -> list[Path]:
    """The folders of the groups that `controller` rules us by, nearest first; none if not mounted."""
    with suppress(OSError):
        for kind, group in _memberships(controller):
            for root, mount in _mounts(kind, controller):
                return [folder for folder in _upwards(group, root, mount) if folder.is_dir()]
    return []


def _memberships(controller: str) -> Iterator[tuple[str, PurePosixPath]]:
    """Our group in the hierarchy with the controller: one of version 1 if it is named, else version 2."""
    lines = [line.split(":", 2) for line in GROUPS.read_text().splitlines()]
    yield from (("cgroup", PurePosixPath(path)) for _, names, path in lines if controller in names.split(","))
    yield from (("cgroup2", PurePosixPath(path)) for _, names, path in lines if not names)


def _mounts(kind: str, controller: str) -> Iterator[tuple[PurePosixPath, Path]]:
    """Which group is seen where."""
    for line in MOUNTS.read_text().splitlines():
        place, _, described = line.partition(" - ")
        root, mount = place.split()[3:5]
        found, _, options = described.split()[:3]
        if found == kind and (kind == "cgroup2" or controller in options.split(",")):
            yield PurePosixPath(root), Path(mount)


def _upwards(group: PurePosixPath, root: PurePosixPath, mount: Path) -> list[Path]:
    # A container may see its own group as the root of the mount, and its host's path to it.
    below = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
    own = mount / below
    return [own, *own.parents][: len(below.parts) + 1]


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


def cpu_quota() -> float | None:
    """How many processors are paid for; None where there is no limit."""
    quotas = []
    for group in ancestors("cpu"):
        files = (group / name for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
        words = [word for file in files for word in _words(file)]
        if len(words) == 2 and words[0].isdigit():  # else "max" or "-1"
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


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


def _numbers(group: Path, names: tuple[str, ...]) -> list[int]:
    return [int(word) for name in names for word in _words(group / name) if word.isdigit()]


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
