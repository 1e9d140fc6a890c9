"""The cgroups of this process (version 1 or 2), their limits and their usage."""

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


def cgroup_folders(controller: str) -> list[Path]:
    """Return this process's cgroup folders of a controller, nearest first; [] if unmounted."""
    with suppress(OSError):
        lines = [line.split(":", 2) for line in GROUPS.read_text().splitlines()]
        groups = [("cgroup", path) for _, names, path in lines if controller in names.split(",")]
        groups += [("cgroup2", path) for _, names, path in lines if not names]
        for group_kind, path in groups:
            for line in MOUNTS.read_text().splitlines():
                mount_fields, _, source_fields = line.partition(" - ")
                root, mount = mount_fields.split()[3:5]
                kind, _, options = source_fields.split()[:3]
                if kind != group_kind or (kind == "cgroup" and controller not in options.split(",")):
                    continue
                # In a container the mount's root may be its own cgroup, while `path` is the host's.
                group = PurePosixPath(path)
                subpath = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
                own_folder = Path(mount) / subpath
                folders = [own_folder, *own_folder.parents][: len(subpath.parts) + 1]
                return [folder for folder in folders if folder.is_dir()]
    return []


def count_memory_kills() -> int:
    """Return how many processes of this cgroup the kernel killed for lack of memory; 0 if not counted."""
    with suppress(OSError, ValueError, StopIteration):
        lines = find_kill_counter().read_text().splitlines()
        return int(next(line.removeprefix(COUNT) for line in lines if line.startswith(COUNT)))
    return 0


@lru_cache(maxsize=1)
def find_kill_counter() -> Path:
    """Return the file that counts kills for lack of memory. Raises StopIteration."""
    files = (group / name for group in cgroup_folders("memory") for name in FILES)
    return next(file for file in files if file.is_file())


def cpu_quota() -> float | None:
    """Return the lowest CPU quota of the cgroups, in CPUs; None without a quota."""
    quotas = []
    for group in cgroup_folders("cpu"):
        files = (group / name for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"))
        words = [word for file in files for word in _words(file)]
        if len(words) == 2 and words[0].isdigit():  # else "max" or "-1"
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Return the lowest memory limit of the cgroups, in bytes; None without a limit."""
    return min((n for group in cgroup_folders("memory") for n in _numbers(group, LIMITS)), default=None)


def memory_left() -> int | None:
    """Return the bytes left until the nearest memory limit, counting inactive file cache as free."""
    remaining = []
    for group in cgroup_folders("memory"):
        words = _words(group / "memory.stat")
        stat = dict(zip(words[::2], words[1::2], strict=False))
        # Version 1 counts a group's own pages apart from all pages below it, which its usage includes.
        cached_bytes = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
        for limit, usage in zip(_numbers(group, LIMITS), _numbers(group, USED), strict=False):
            remaining.append(limit - usage + cached_bytes)
    return min(remaining, default=None)


def _numbers(group: Path, names: tuple[str, ...]) -> list[int]:
    return [int(word) for name in names for word in _words(group / name) if word.isdigit()]


def _words(file: Path) -> list[str]:
    return file.read_text().split() if file.is_file() else []
