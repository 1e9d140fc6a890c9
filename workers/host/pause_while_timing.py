"""Suspends a child process, which only computes, while any process times on this host."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mallorn.core.errors import HostFault
from mallorn.workers.host.host_lock import CoreLock
from mallorn.workers.subprocesses.child_process import Child

SLICE_SEC: Final = 0.2  # so long a candidate may have to wait for the child to stop
PATIENCE_SEC: Final = 300.0  # so long the child waits for processes that time
log = logging.getLogger(__name__)


@contextmanager
def paused_while_timing(
    child: Child,
    cores: CoreLock | None = None,
    slice_sec: float = SLICE_SEC,
    patience_sec: float = PATIENCE_SEC,
) -> Iterator[None]:
    """Suspend the child process while any process on this host times; resume it afterwards,
    or after `patience_sec`: every user of the host can take the lock. Raises HostFault if the
    lock files cannot be opened. If a lock fails later, the child is no longer suspended."""
    cores = cores or CoreLock()
    cores.files()
    finished = threading.Event()
    arguments = (child, cores, slice_sec, patience_sec, finished)
    threading.Thread(target=_resume_in_slices, args=arguments, name="giving-way", daemon=True).start()
    try:
        yield
    finally:
        # The thread is not joined: it may wait for a process that times, and ends by itself.
        finished.set()


def _resume_in_slices(
    child: Child, cores: CoreLock, slice_sec: float, patience_sec: float, finished: threading.Event
) -> None:
    def stop_waiting() -> None:
        log.warning(
            "an import goes on after %g s though a process keeps the cores; see `lslocks`", patience_sec
        )
        child.resume()

    try:
        while not finished.is_set():
            child.suspend()
            timer = threading.Timer(patience_sec, stop_waiting)
            timer.daemon = True
            timer.start()
            try:
                cores.lock_shared()
            finally:
                timer.cancel()
            try:
                child.resume()
                finished.wait(slice_sec)
            finally:
                if not finished.is_set():
                    child.suspend()
                cores.unlock()
    except (OSError, HostFault) as error:
        log.warning("an import goes on while other processes time: %s", error)
    finally:
        child.resume()
