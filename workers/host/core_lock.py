"""Locks on the cores of this host: exclusive for timing, shared for computing.

The locks are on two files; the kernel releases the locks of a process that dies. Containers
exclude each other only if MALLORN_HOST_FOLDER names a directory that they share.
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
# If the name is a pipe, opening it does not wait for its other end; a link is not followed.
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_lock(path: Path, mode: int) -> int:
    """Open a lock file, created with `mode` if new. Raises HostFault without access."""
    try:
        with suppress(FileNotFoundError):
            return _open(path, mode)
        # Linked into place with its final mode, whatever the umask: no process sees it unfinished.
        with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}-") as file:
            os.fchmod(file.fileno(), mode)
            with suppress(FileExistsError):
                os.link(file.name, path)
        return _open(path, mode)
    except OSError as error:
        if error.errno not in _CLOSED:
            raise
        raise HostFault(
            f"the lock file {path} cannot be opened: {error.strerror}",
            hint=f"ls -l {path}   (the owner of the file types: chmod {mode:o} {path})",
        ) from None


def _open(path: Path, mode: int) -> int:
    lock_fd = os.open(path, _OPEN_FLAGS)
    status = os.fstat(lock_fd)
    is_ours = status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode)
    if is_ours and stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(lock_fd, mode)  # it was created under a restrictive umask
    return lock_fd


LOCK_NAME: Final = "mallorn-cores.lock"
LOOK_SEC: Final = 0.005
EVERYBODYS: Final = 0o644


class CoreLock:
    """Lock on the host's cores. While a process waits to hold it exclusively, no other
    process can begin to share it."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or host_folder() / LOCK_NAME
        self._lock_fds: list[int] = []

    def lock_exclusively(self, wait_sec: float) -> bool:
        """Lock the cores exclusively, unless held already; False after `wait_sec`."""
        deadline_sec = time.monotonic() + wait_sec
        with ExitStack() as stack:
            stack.callback(self.unlock)
            for path in (self._gate, self._path)[len(self._lock_fds) :]:
                while (lock_fd := _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
                    if time.monotonic() > deadline_sec:
                        return False
                    time.sleep(LOOK_SEC)
                self._lock_fds.append(lock_fd)
            stack.pop_all()
        return True

    def lock_shared(self) -> None:
        """Take the lock shared, as soon as no process times or waits to time. Until it is
        given back, no process can begin to time."""
        gate_fd = _lock(self._gate, fcntl.LOCK_SH)
        try:
            lock_fd = _lock(self._path, fcntl.LOCK_SH)
        finally:
            if gate_fd is not None:
                os.close(gate_fd)
        self._lock_fds = [each_fd for each_fd in (lock_fd,) if each_fd is not None]

    def unlock(self) -> None:
        while self._lock_fds:
            os.close(self._lock_fds.pop())

    def files(self) -> tuple[Path, Path]:
        """Return the two lock files, created if missing. Raises HostFault without access."""
        for path in (self._gate, self._path):
            os.close(open_lock(path, EVERYBODYS))
        return self._gate, self._path

    def describe_holder(self) -> str:
        """Name a process that holds the lock or its gate exclusively, and its user."""
        inodes = {str(path.stat().st_ino) for path in self.files()}
        for line in Path("/proc/locks").read_text().splitlines():
            # A process that waits for a lock has the additional word `->`.
            words = line.split()
            if words[1] == "FLOCK" and words[3] == "WRITE" and words[5].rpartition(":")[2] in inodes:
                folder = Path("/proc", words[4])
                with suppress(OSError):
                    return f"process {words[4]} ({(folder / 'comm').read_text().strip()}, {folder.owner()})"
        return "a process of another container"

    @property
    def _gate(self) -> Path:
        return self._path.with_suffix(".gate")


def lock_identity() -> str:
    """Identify the file on which this process locks the cores; empty if it cannot be
    opened. It differs for two processes of a host that do not wait for each other."""
    try:
        status = CoreLock().files()[1].stat()
    except (HostFault, OSError):
        return ""
    return f"{status.st_dev:x}-{status.st_ino:x}"


def _lock(path: Path, operation: int) -> int | None:
    """Lock a file; return its descriptor, or None if taken and `operation` does not wait."""
    lock_fd = open_lock(path, EVERYBODYS)
    try:
        fcntl.flock(lock_fd, operation)
    except BlockingIOError:
        os.close(lock_fd)
        return None
    return lock_fd
