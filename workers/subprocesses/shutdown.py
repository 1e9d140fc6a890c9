"""How a worker that is asked to stop lets go of what it does, within seconds and without loss.

The one thing of a worker that is global to its process: a process stops once, and every child belongs to it.
"""

import contextlib
import logging
import os
import signal
import threading

from mallorn.core.errors import LeaseLost
from workers.subprocesses.cpu_share import processor_sec

log = logging.getLogger(__name__)


class ShutdownRequested(LeaseLost):
    """This worker was asked to stop; what it held goes back to the queue."""

    @property
    def reason(self) -> str:
        """Nothing that a job need know: another worker takes what this one held."""
        return ""


class Shutdown:
    """The wish to stop, and the process groups that would keep the worker waiting."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._groups: set[int] = set()
        self._ended_sec = 0.0

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    def ask(self) -> None:
        """Stop soon: every child is killed, and no new one starts. Safe in a signal handler."""
        self._asked.set()
        for pid in tuple(self._groups):
            _kill_group(pid)

    def replaced(self) -> None:
        """End this worker, whose supervisor restarts it with the code that is there now."""
        log.error("the code of this worker was replaced, so it ends: its supervisor restarts it")
        self.ask()
        os.kill(os.getpid(), signal.SIGTERM)

    def check(self) -> None:
        """Raise ShutdownRequested once the worker was asked to stop."""
        if self.asked:
            raise ShutdownRequested

    def enter(self, pid: int) -> None:
        """A child runs in the process group `pid`; it is killed at once when the wish came first."""
        self._groups.add(pid)
        if self.asked:
            _kill_group(pid)

    def leave(self, pid: int) -> None:
        """The child is about to be reaped: from then on its number may be another process's."""
        if pid in self._groups:
            self._ended_sec += processor_sec(pid)
        self._groups.discard(pid)

    def processor_sec(self) -> float:
        """What this worker's children took of the processors so far."""
        return self._ended_sec + sum(map(processor_sec, tuple(self._groups)))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


STOP = Shutdown()
