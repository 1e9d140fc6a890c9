"""Whose turn it is at the cores of this host: who times has them alone, who merely computes shares them.

Locks on two files: the kernel takes them from a process that dies. Containers exclude each other only where
MALLORN_HOST_FOLDER names a directory that they share.
"""

import errno
import fcntl
import os
import stat
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from mallorn.core.errors import HostFault
from mallorn.core.host_id import host_folder

_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP})
# Of a pipe at the name nobody waits for the other end, and a link is not followed.
_HOW: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_lock(path: Path, mode: int) -> int:
    """The file, with this mode where it is ours or new. Raises HostFault where it is closed to us."""
    try:
        with suppress(FileNotFoundError):
            return _open(path, mode)
        # Whole at once, and whatever the umask of who comes first: others meet it as it is to be.
        with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}-") as file:
            os.fchmod(file.fileno(), mode)
            with suppress(FileExistsError):
                os.link(file.name, path)
        return _open(path, mode)
    except OSError as error:
        if error.errno not in _CLOSED:
            raise
        raise HostFault(
            f"{path}, on which all who compute here lock, cannot be opened: {error.strerror}",
            hint=f"ls -l {path}   (its owner types: chmod {mode:o} {path})",
        ) from None


def _open(path: Path, mode: int) -> int:
    lock_fd = os.open(path, _HOW)
    found = os.fstat(lock_fd)
    ours = found.st_uid == os.getuid() and stat.S_ISREG(found.st_mode)
    if ours and stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(lock_fd, mode)  # made under a closed umask
    return lock_fd


LOCK_NAME: Final = "mallorn-cores.lock"
LOOK_SEC: Final = 0.005
EVERYBODYS: Final = 0o644


class CoreLock:
    """This process's claim on the cores of its host. Who waits to time lets nobody else begin to share."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or host_folder() / LOCK_NAME
        self._held: list[int] = []

    def take(self, wait_sec: float) -> bool:
        """Take the cores alone, unless we have them; False if others used them all the time."""
        deadline_sec = time.monotonic() + wait_sec
        with ExitStack() as unless_all:
            unless_all.callback(self.give_back)
            for path in (self._gate, self._path)[len(self._held) :]:
                while (lock_fd := _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
                    if time.monotonic() > deadline_sec:
                        return False
                    time.sleep(LOOK_SEC)
                self._held.append(lock_fd)
            unless_all.pop_all()
        return True

    def share(self) -> None:
        """Wait until nobody times or waits to; then nobody begins to before we give the cores back."""
        gate_fd = _locked(self._gate, fcntl.LOCK_SH)
        try:
            lock_fd = _locked(self._path, fcntl.LOCK_SH)
        finally:
            if gate_fd is not None:
                os.close(gate_fd)
        self._held = [found_fd for found_fd in (lock_fd,) if found_fd is not None]

    def give_back(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def files(self) -> tuple[Path, Path]:
        """The files that the locks are on; they are there from now on. Raises HostFault."""
        for path in (self._gate, self._path):
            os.close(open_lock(path, EVERYBODYS))
        return self._gate, self._path

    @property
    def _gate(self) -> Path:
        return self._path.with_suffix(".gate")


def lock_identity() -> str:
    """Return a name of the file on which this process locks the cores; empty if it cannot be opened.

    It differs for two processes of one host whose locks do not exclude each other.
    """
    try:
        about = CoreLock().files()[1].stat()
    except (HostFault, OSError):
        return ""
    return f"{about.st_dev:x}-{about.st_ino:x}"


def _locked(path: Path, how: int) -> int | None:
    """A locked file; None when others have it and `how` does not wait."""
    lock_fd = open_lock(path, EVERYBODYS)
    try:
        fcntl.flock(lock_fd, how)
    except BlockingIOError:
        os.close(lock_fd)
        return None
    return lock_fd
