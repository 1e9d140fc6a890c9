"""The cgroups of this process (version 1 or 2), their limits and their usage."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

COUNT: Final = "oom_kill "
FILES: Final = ("memory.events", "memory.oom_control")
GROUPS: Final = Path("/proc/self/cgroup")
MOUNTS: Final = Path("/proc/self/mountinfo")
# Files of version 2, then of version 1.
LIMITS: Final = ("memory.max", "memory.limit_in_bytes")
USED: Final = ("memory.current", "memory.usage_in_bytes")
CACHED: Final = frozenset({"inactive_file", "total_inactive_file"})


def ancestors(controller: str) -> list[Path]:
    """Return the folders of this process's cgroups of a controller, nearest first; [] if unmounted."""
    with suppress(OSError):
        for kind, group in _memberships(controller):
            for root, mount in _mounts(kind, controller):
                return [folder for folder in _upwards(group, root, mount) if folder.is_dir()]
    return []


def _memberships(controller: str) -> Iterator[tuple[str, PurePosixPath]]:
    """Yield file system type and path of this process's cgroups: version 1 of the controller, then 2."""
    lines = [line.split(":", 2) for line in GROUPS.read_text().splitlines()]
    yield from (("cgroup", PurePosixPath(path)) for _, names, path in lines if controller in names.split(","))
    yield from (("cgroup2", PurePosixPath(path)) for _, names, path in lines if not names)


def _mounts(kind: str, controller: str) -> Iterator[tuple[PurePosixPath, Path]]:
    """Yield each mount of the hierarchy: the cgroup at its root, and its mount point."""
    for line in MOUNTS.read_text().splitlines():
        mount_fields, _, source_fields = line.partition(" - ")
        root, mount = mount_fields.split()[3:5]
        mount_kind, _, options = source_fields.split()[:3]
        if mount_kind == kind and (kind == "cgroup2" or controller in options.split(",")):
            yield PurePosixPath(root), Path(mount)


def _upwards(group: PurePosixPath, root: PurePosixPath, mount: Path) -> list[Path]:
    # In a container the mount's root may be its own cgroup, while `group` is the host's path.
    subpath = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
    own_folder = mount / subpath
    return [own_folder, *own_folder.parents][: len(subpath.parts) + 1]


def killed_for_memory() -> int:
    """Return how many processes of this cgroup the kernel killed for lack of memory; 0 if not counted."""
    with suppress(OSError, ValueError, StopIteration):
        lines = _counter().read_text().splitlines()
        return int(next(line.removeprefix(COUNT) for line in lines if line.startswith(COUNT)))
    return 0


@lru_cache(maxsize=1)
def _counter() -> Path:
    """Return the file that counts such kills. Raises StopIteration if there is none."""
    files = (group / name for group in ancestors("memory") for name in FILES)
    return next(file for file in files if file.is_file())


def cpu_quota() -> float | None:
    """Return the lowest CPU quota of the cgroups, in CPUs; None without a quota."""
    quotas = []
    for group in ancestors("cpu"):
        files = (group / name for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
        words = [word for file in files for word in _words(file)]
        if len(words) == 2 and words[0].isdigit():  # else "max" or "-1"
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Return the lowest memory limit of the cgroups, in bytes; None without a limit."""
    return min((limit for group in ancestors("memory") for limit in _numbers(group, LIMITS)), default=None)


def memory_left() -> int | None:
    """Return the bytes left until the nearest memory limit, counting inactive file cache as free."""
    remaining = (
        limit - usage + _sum(group / "memory.stat", CACHED)
        for group in ancestors("memory")
        for limit, usage in zip(_numbers(group, LIMITS), _numbers(group, USED), strict=False)
    )
    return min((int(bytes_left) for bytes_left in remaining), default=None)


def _sum(file: Path, names: frozenset[str]) -> int:
    """Return the sum of the numbers after these names in a file of name-number lines."""
    words = _words(file)
    return sum(int(words[i + 1]) for i, name in enumerate(words) if name in names)


def _numbers(group: Path, names: tuple[str, ...]) -> list[int]:
    return [int(word) for name in names for word in _words(group / name) if word.isdigit()]


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
