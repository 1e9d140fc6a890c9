"""The control groups that this process is in, of either version, as far as they can be seen from here."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

COUNT: Final = "oom_kill "
FILES: Final = ("memory.events", "memory.oom_control")
GROUPS: Final = Path("/proc/self/cgroup")
MOUNTS: Final = Path("/proc/self/mountinfo")


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
