"""Network file systems whose locks hold on one machine alone: two machines would write one database there."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
# By kind of file system, the options with which flock is not passed on to the server.
LOCAL_LOCKS: Final = {
    "nfs": {"nolock", "local_lock=all", "local_lock=flock"},
    "nfs4": {"nolock", "local_lock=all", "local_lock=flock"},
    "cifs": {"nobrl", "nolock"},
    "smb3": {"nobrl", "nolock"},
    "lustre": {"localflock"},
}
ALWAYS_LOCAL: Final = frozenset({"fuse.sshfs", "afs"})


@dataclass(frozen=True)
class Mount:
    """Where a file system hangs, its kind, and how it was mounted."""

    point: Path
    kind: str
    options: frozenset[str]

    @property
    def has_local_locks(self) -> bool:
        """Whether another machine's lock on the same file is not seen here."""
        return self.kind in ALWAYS_LOCAL or bool(LOCAL_LOCKS.get(self.kind, set()) & self.options)


def mount_of(path: Path) -> Mount | None:
    """What a path lies on; None where the kernel tells of no mounts."""
    if not MOUNTS.is_file():
        return None
    mounts = map(_parse, MOUNTS.read_text().splitlines())
    over = [mount for mount in mounts if path.resolve().is_relative_to(mount.point)]
    # Of two at one place the later hides the earlier.
    return max(reversed(over), key=lambda mount: len(mount.point.parts), default=None)


def _parse(line: str) -> Mount:
    """A line is `id parent dev root point options ... - kind source options`, odd characters in octal."""
    ours, _, theirs = line.partition(" - ")
    _, _, _, _, point, options, *_ = ours.split(" ")
    kind, _, *more = theirs.split(" ")
    octal = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found[1], 8)]), os.fsencode(point))
    return Mount(Path(os.fsdecode(octal)), kind, frozenset(",".join((options, *more)).split(",")))
