"""Who works on this host: rounds, imports and compilations beside one another, or a whole model, timed alone.

Two worker slots on one host do not know of each other, and one that compiles makes the other's last figure
wrong, several times over. Locks on two files in the temporary directory tell them. The kernel lets go of them
when their holder dies, however it dies.

- `shared` is for work of any kind, `alone` for the timing of a whole model.
- Who wants to be alone closes the gate first, so that newcomers wait and it does not wait for ever.
- Who shares for long makes way at the gate: it stops what it builds while another is alone.
- Who is alone has the cores, too (`workers.host.core_lock`): no device of this host times, and imports, which
  share nothing, stop meanwhile.
- A device is taken before the host is shared, and never while one is alone: nobody waits in a circle.
- Every wait ends. Who was patient for too long goes on without the lock, and says so.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mallorn.core.host_id import host_folder
from workers.host.core_lock import LOCK_NAME, CoreLock, open_lock
from workers.subprocesses.shutdown import STOP

# Longer than a compilation that cannot be stopped for us, and shorter than anyone waits for a last figure.
ALONE_PATIENCE_SEC: Final = 120.0
# Longer than any model is timed.
SHARED_PATIENCE_SEC: Final = 600.0
POLL_SEC: Final = 0.05
OURS: Final = 0o600
log = logging.getLogger(__name__)


class HostShare:
    def __init__(self, host: "HostLock", place: int) -> None:
        self._host = host
        self._place = place

    def make_way(self, pause: Callable[[], None], go_on: Callable[[], None]) -> None:
        """If somebody asks to be alone, `pause`, wait until the host is free again, and `go_on`."""
        if self._host.gate_is_open():
            return
        pause()
        try:
            fcntl.flock(self._place, fcntl.LOCK_UN)
            self._host.enter(self._place)
        finally:
            go_on()


class HostLock:
    """The locks. Other users and containers have locks of their own: their work is only noticed, as load."""

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
    def shared(self) -> Iterator[HostShare]:
        """Work beside others; waits while somebody is alone."""
        with self._open("host") as place:
            self.enter(place)
            yield HostShare(self, place)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep all others from working; False where they would not end in time."""
        until_sec = time.monotonic() + self._alone_patience_sec
        with self._open("gate") as gate, self._open("host") as place:
            held = _wait(gate, fcntl.LOCK_EX, until_sec) and _wait(place, fcntl.LOCK_EX, until_sec)
            cores = CoreLock(self._folder / LOCK_NAME)
            held = held and cores.take(until_sec - time.monotonic())
            if not held:
                log.warning("others worked on this host for %g s: not alone", self._alone_patience_sec)
            try:
                yield held
            finally:
                cores.give_back()

    def enter(self, place: int) -> None:
        """Take a share through the gate."""
        with self._open("gate") as gate:
            until_sec = time.monotonic() + self._shared_patience_sec
            if not (_wait(gate, fcntl.LOCK_SH, until_sec) and _wait(place, fcntl.LOCK_SH, until_sec)):
                log.warning("somebody was alone on this host for %g s: going on", self._shared_patience_sec)

    def gate_is_open(self) -> bool:
        """Whether nobody is alone, or wants to be."""
        with self._open("gate") as gate:
            return _locked(gate, fcntl.LOCK_SH)

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """An open lock file; closing it releases the lock."""
        path = self._folder / f"mallorn-{os.getuid()}-{name}.lock"
        opened = open_lock(path, OURS)
        try:
            yield opened
        finally:
            os.close(opened)


def _wait(opened: int, how: int, until_sec: float) -> bool:
    """Lock it in time. Raises ShutdownRequested once this process was asked to stop."""
    while not _locked(opened, how):
        STOP.check()
        if time.monotonic() >= until_sec:
            return False
        time.sleep(POLL_SEC)
    return True


def _locked(opened: int, how: int) -> bool:
    try:
        fcntl.flock(opened, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
