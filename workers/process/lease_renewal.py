"""Keeps a lease alive while the work goes on, and notices when it is gone."""

import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Self

from mallorn.core.errors import LeaseLost, MallornError
from workers.subprocesses.shutdown import STOP

log = logging.getLogger(__name__)


class LeaseKeeper:
    """Renews from a thread of its own, so that a long round never looks dead.

    A renewal that the database refuses means another worker has the work (or the job was cancelled): the
    lease is lost for good. A database that does not answer is asked again until the lease has run out.
    """

    def __init__(self, renew: Callable[[], bool], lease_sec: float) -> None:
        self._renew = renew
        self._lease_sec = lease_sec
        self._stop = threading.Event()
        self._lost = threading.Event()
        # Its warnings name the job and round of whoever took the lease.
        mine = copy_context()
        self._thread = threading.Thread(target=mine.run, args=(self._run,), name="lease", daemon=True)

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    def check(self) -> None:
        """Raise LeaseLost if the work is not ours any more, ShutdownRequested if we have to give it back."""
        if self.lost:
            raise LeaseLost
        STOP.check()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        misses = 0
        while not self._stop.wait(self._lease_sec / 6):
            try:
                kept = self._renew()
                misses = 0
            except Exception as error:  # who learns nothing of its lease believes that it has it
                misses += 1
                kept = misses < 6
                ours = not isinstance(error, MallornError)
                log.warning("the lease could not be renewed: %s", error, exc_info=ours)
            if not kept:
                self._lost.set()
                return
