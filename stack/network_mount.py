"""Network file systems with locks for one machine only, where two machines could write one database."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")
# By file system type, the mount options with which flock is not passed on to the server.
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
    """A mounted file system: its mount point, type and mount options."""

    point: Path
    kind: str
    options: frozenset[str]

    @property
    def has_local_locks(self) -> bool:
        """Whether locks that another machine holds on the same file are not seen here."""
        return self.kind in ALWAYS_LOCAL or bool(LOCAL_LOCKS.get(self.kind, set()) & self.options)


def mount_of(path: Path) -> Mount | None:
    """Return the mount on which a path lies; None if the kernel lists no mounts."""
    if not MOUNTS.is_file():
        return None
    mounts = map(_parse, MOUNTS.read_text().splitlines())
    candidates = [mount for mount in mounts if path.resolve().is_relative_to(mount.point)]
    # Of two mounts at one point, the later hides the earlier.
    return max(reversed(candidates), key=lambda mount: len(mount.point.parts), default=None)


def _parse(line: str) -> Mount:
    """Parse `id parent dev root point options ... - kind source options`, with octal escapes."""
    mount_fields, _, source_fields = line.partition(" - ")
    _, _, _, _, point, options, *_ = mount_fields.split(" ")
    kind, _, *super_options = source_fields.split(" ")
    decoded = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), os.fsencode(point))
    return Mount(Path(os.fsdecode(decoded)), kind, frozenset(",".join((options, *super_options)).split(",")))
