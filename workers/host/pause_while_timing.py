"""Work that gives way: a child computes only while nobody times on this host."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mallorn.core.errors import HostFault
from workers.host.core_lock import CoreLock
from workers.subprocesses.child_process import Child

SLICE_SEC: Final = 0.2  # what a candidate may have to wait for the end of
log = logging.getLogger(__name__)


@contextmanager
def paused_while_timing(
    child: Child, cores: CoreLock | None = None, slice_sec: float = SLICE_SEC
) -> Iterator[None]:
    """Stop the child before anybody here begins to time, and let it go on when that is over.

    Raises HostFault where the locks may not be opened. One that fails later leaves the child running.
    """
    cores = cores or CoreLock()
    cores.files()
    over = threading.Event()
    work = (child, cores, slice_sec, over)
    threading.Thread(target=_in_slices, args=work, name="giving-way", daemon=True).start()
    try:
        yield
    finally:
        # Not joined: it may wait for whoever times, and does nothing once it is over.
        over.set()


def _in_slices(child: Child, cores: CoreLock, slice_sec: float, over: threading.Event) -> None:
    try:
        while not over.is_set():
            child.suspend()
            cores.share()
            try:
                child.resume()
                over.wait(slice_sec)
            finally:
                if not over.is_set():
                    child.suspend()
                cores.give_back()
    except (OSError, HostFault) as error:
        log.warning("an import goes on beside those who time: %s", error)
    finally:
        child.resume()
