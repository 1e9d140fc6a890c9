"""Locks of this host: on its cores, to time or to compute, and on all, for a whole model.

All locks are on files; the kernel releases the locks of a process that dies. Containers
exclude each other only if MALLORN_HOST_FOLDER names a directory that they share. The cores
are locked exclusively for timing, shared for computing.

Workers on one host do not know of each other; if one compiles while another times a whole
model, that time is several times too long. Two more lock files coordinate them.

- `shared` is for work of any kind, `alone` for timing a whole model.
- A process that wants to be alone locks the gate first, so that newcomers wait and it gets its turn.
- A process that shares for long makes way at the gate: it stops its builds while another is alone.
- A process that is alone also has the cores: no device of this host times meanwhile, and imports,
  which do not use this lock, pause.
- A process takes a device before it shares the host, and never while it is alone: no deadlock.
- Every wait has a limit. A process that reaches it goes on without the lock and logs a warning.
"""

import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

from mallorn.core.errors import HostFault
from mallorn.core.host_id import host_folder
from mallorn.workers.subprocesses.shutdown import STOP

_CLOSED: Final = frozenset({errno.EACCES, errno.EPERM, errno.ELOOP})
# If the name is a pipe, opening it does not wait for its other end; a link is not followed.
_OPEN_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
POLL_SEC: Final = 0.05
OURS: Final = 0o600
log = logging.getLogger(__name__)
LOCK_NAME: Final = "mallorn-cores.lock"
LOOK_SEC: Final = 0.005
EVERYBODYS: Final = 0o644


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


class HostShare:
    """A shared lock on the host, held by this process."""

    def __init__(self, host: "HostLock", host_fd: int) -> None:
        self._host = host
        self._host_fd = host_fd

    def pause_if_requested(self, pause: Callable[[], None], go_on: Callable[[], None]) -> None:
        """Pause for a process that asks to be alone: `pause`, wait until done, `go_on`."""
        if self._host.is_gate_open():
            return
        pause()
        try:
            fcntl.flock(self._host_fd, fcntl.LOCK_UN)
            self._host.lock_shared(self._host_fd)
        finally:
            go_on()


@dataclass(frozen=True)
class HostLock:
    """The host's locks. Other users and containers have others; those show as load."""

    folder: Path = field(default_factory=host_folder)
    alone_patience_sec: float = 120.0  # longer than an unsuspendable compilation
    shared_patience_sec: float = 600.0  # longer than any model is timed

    @contextmanager
    def hold_shared(self) -> Iterator[HostShare]:
        """Hold the shared lock; first wait while another process has the host alone."""
        with self._open("host") as host_fd:
            self.lock_shared(host_fd)
            yield HostShare(self, host_fd)

    @contextmanager
    def hold_exclusive(self) -> Iterator[bool]:
        """Hold the exclusive lock; yield False if other work did not end in time."""
        until_sec = time.monotonic() + self.alone_patience_sec
        with self._open("gate") as gate_fd, self._open("host") as host_fd:
            is_alone = _lock_all((gate_fd, host_fd), fcntl.LOCK_EX, until_sec)
            cores = CoreLock(self.folder / LOCK_NAME)
            is_alone = is_alone and cores.lock_exclusively(until_sec - time.monotonic())
            if not is_alone:
                words = "other processes used this host for %g s: timing beside them"
                log.warning(words, self.alone_patience_sec)
            try:
                yield is_alone
            finally:
                cores.unlock()

    def lock_shared(self, host_fd: int) -> None:
        """Lock once no process is alone or waits to be; on timeout, warn and go on."""
        with self._open("gate") as gate_fd:
            until_sec = time.monotonic() + self.shared_patience_sec
            if not _lock_all((gate_fd, host_fd), fcntl.LOCK_SH, until_sec):
                words = "a process held this host for %g s: not waiting longer"
                log.warning(words, self.shared_patience_sec)

    def is_gate_open(self) -> bool:
        """Return whether no process is alone or waits to be."""
        with self._open("gate") as gate_fd:
            return _try_lock(gate_fd, fcntl.LOCK_SH)

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """Yield the descriptor of a lock file; closing it at the end releases the lock."""
        path = self.folder / f"mallorn-{os.getuid()}-{name}.lock"
        lock_fd = open_lock(path, OURS)
        try:
            yield lock_fd
        finally:
            os.close(lock_fd)


def _lock_all(lock_fds: Sequence[int], operation: int, until_sec: float) -> bool:
    """Lock files in this order; return False on timeout. Raises ShutdownRequested."""
    for lock_fd in lock_fds:
        while not _try_lock(lock_fd, operation):
            STOP.raise_if_requested()
            if time.monotonic() >= until_sec:
                return False
            time.sleep(POLL_SEC)
    return True


def _try_lock(lock_fd: int, operation: int) -> bool:
    try:
        fcntl.flock(lock_fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
