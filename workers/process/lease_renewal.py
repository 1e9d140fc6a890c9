"""Renews a lease in the background while the work runs, and detects when the lease is lost."""

import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Final, Self

from mallorn.core.errors import LeaseLost, MallornError
from mallorn.workers.subprocesses.shutdown import STOP

log = logging.getLogger(__name__)
LOOK_SEC: Final = 0.2  # between checks whether the lease is lost or the worker must stop
_held_lease: Final[ContextVar["LeaseKeeper | None"]] = ContextVar("held_lease", default=None)


def sleep_while_leased(seconds: float) -> None:
    """Sleep, and stop as soon as this thread's lease is lost or the worker must stop.

    Raises LeaseLost or ShutdownRequested then.
    """
    until_sec, lease = time.monotonic() + seconds, _held_lease.get()
    while (left_sec := until_sec - time.monotonic()) > 0:
        if lease is not None:
            lease.raise_if_lost()
        STOP.raise_if_requested()
        time.sleep(min(left_sec, LOOK_SEC))


class LeaseKeeper:
    """Renews a lease from its own thread, so that the lease of a long round does not
    expire. If the database refuses, another worker has the work or the job was cancelled,
    and the lease is lost for good. If the database does not answer, the thread retries
    until the lease has expired."""

    def __init__(self, renew: Callable[[], bool], lease_sec: float) -> None:
        self._renew = renew
        self._lease_sec = lease_sec
        self._stop = threading.Event()
        self._lost = threading.Event()
        # The thread's log lines carry the job and round of the thread that took the lease.
        run, target = copy_context().run, self._renew_repeatedly
        self._thread = threading.Thread(target=run, args=(target,), name="lease", daemon=True)

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def raise_if_lost(self) -> None:
        """Raise LeaseLost if the lease is lost, ShutdownRequested if the worker must stop."""
        if self.is_lost:
            raise LeaseLost
        STOP.raise_if_requested()

    def __enter__(self) -> Self:
        self._thread.start()
        self._outer = _held_lease.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _held_lease.reset(self._outer)
        self._stop.set()
        self._thread.join()

    def _renew_repeatedly(self) -> None:
        failures = 0
        while not self._stop.wait(self._lease_sec / 6):
            try:
                is_held = self._renew()
                failures = 0
            except Exception as error:  # the lease may still be held
                failures += 1
                is_held = failures < 6
                is_bug = not isinstance(error, MallornError)
                log.warning("the lease could not be renewed: %s", error, exc_info=is_bug)
            if not is_held:
                self._lost.set()
                return
