"""Locks on this host: shared for work on it, exclusive for timing a whole model.

Workers on one host do not know of each other; if one compiles while another times a
whole model, that time is several times too long. Two lock files coordinate them. The kernel
releases the locks of a process that dies.

- `shared` is for work of any kind, `alone` for timing a whole model.
- A process that wants to be alone locks the gate first, so that newcomers wait and it gets its turn.
- A process that shares for long makes way at the gate: it stops its builds while another is alone.
- A process that is alone also has the cores (`mallorn.workers.host.core_lock`): no device of this host times
  meanwhile, and imports, which do not use this lock, pause.
- A process takes a device before it shares the host, and never while it is alone: no deadlock.
- Every wait has a limit. A process that reaches it goes on without the lock and logs a warning.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mallorn.core.host_id import host_folder
from mallorn.workers.host.core_lock import LOCK_NAME, CoreLock, open_lock
from mallorn.workers.subprocesses.shutdown import STOP

# Longer than a compilation that cannot be suspended, and shorter than users wait for a report.
ALONE_PATIENCE_SEC: Final = 120.0
# Longer than any model is timed.
SHARED_PATIENCE_SEC: Final = 600.0
POLL_SEC: Final = 0.05
OURS: Final = 0o600
log = logging.getLogger(__name__)


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


class HostLock:
    """The host's locks. Other users and containers have others; those show as load."""

    def __init__(
        self,
        folder: Path | None = None,
        alone_patience_sec: float = ALONE_PATIENCE_SEC,
        shared_patience_sec: float = SHARED_PATIENCE_SEC,
    ) -> None:
        self._folder = folder or host_folder()
        self._alone_patience_sec = alone_patience_sec
        self._shared_patience_sec = shared_patience_sec

    @contextmanager
    def hold_shared(self) -> Iterator[HostShare]:
        """Hold the shared lock; first wait while another process has the host alone."""
        with self._open("host") as host_fd:
            self.lock_shared(host_fd)
            yield HostShare(self, host_fd)

    @contextmanager
    def hold_exclusive(self) -> Iterator[bool]:
        """Hold the exclusive lock; yield False if other work did not end in time."""
        until_sec = time.monotonic() + self._alone_patience_sec
        with self._open("gate") as gate_fd, self._open("host") as host_fd:
            is_alone = _lock_all((gate_fd, host_fd), fcntl.LOCK_EX, until_sec)
            cores = CoreLock(self._folder / LOCK_NAME)
            is_alone = is_alone and cores.lock_exclusively(until_sec - time.monotonic())
            if not is_alone:
                patience_sec = self._alone_patience_sec
                log.warning("other processes used this host for %g s: timing beside them", patience_sec)
            try:
                yield is_alone
            finally:
                cores.unlock()

    def lock_shared(self, host_fd: int) -> None:
        """Take the shared lock as soon as no process is alone or waits to be; on timeout,
        log a warning and go on without it."""
        with self._open("gate") as gate_fd:
            until_sec = time.monotonic() + self._shared_patience_sec
            if not _lock_all((gate_fd, host_fd), fcntl.LOCK_SH, until_sec):
                patience_sec = self._shared_patience_sec
                log.warning("a process held this host for %g s: not waiting longer", patience_sec)

    def is_gate_open(self) -> bool:
        """Return whether no process is alone or waits to be."""
        with self._open("gate") as gate_fd:
            return _try_lock(gate_fd, fcntl.LOCK_SH)

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """Yield the descriptor of a lock file; closing it at the end releases the lock."""
        path = self._folder / f"mallorn-{os.getuid()}-{name}.lock"
        lock_fd = open_lock(path, OURS)
        try:
            yield lock_fd
        finally:
            os.close(lock_fd)


def _lock_all(lock_fds: Sequence[int], operation: int, until_sec: float) -> bool:
    """Lock files in this order; return False on timeout. Raises ShutdownRequested if asked
    to stop."""
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
