"""Stops a worker within seconds without losing work: kills children and starts none.

This is a worker's only process-wide state: a process stops once and owns all its children.
"""

import contextlib
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Final

from mallorn.core.errors import LeaseLost

log = logging.getLogger(__name__)
PROC: Final = Path("/proc")


def used_cpu_sec(pid: int, proc: Path = PROC) -> float:
    """Return the CPU seconds of a process and its reaped children; 0 if the process is gone."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class ShutdownRequested(LeaseLost):
    """Raised once this worker was asked to stop; its leased work goes back to the queue."""


class Shutdown:
    """Holds the request to stop this worker, and kills its children's process groups."""

    def __init__(self) -> None:
        self.requested = threading.Event()
        self._groups: set[int] = set()
        self._ended_sec = 0.0

    def request_stop(self) -> None:
        """Request a stop: kill every child and let none start. Safe in a signal handler."""
        self.requested.set()
        for pid in tuple(self._groups):
            _kill_group(pid)

    def stop_for_replaced_code(self) -> None:
        """Stop this worker because its code was replaced; its supervisor restarts it."""
        log.error("the code of this worker was replaced, so it ends: its supervisor restarts it")
        self.request_stop()
        os.kill(os.getpid(), signal.SIGTERM)

    def raise_if_requested(self) -> None:
        """Raise ShutdownRequested if the worker was asked to stop."""
        if self.requested.is_set():
            raise ShutdownRequested

    def register_child(self, pid: int) -> None:
        """Register a child's process group `pid`; kill it at once after a stop request."""
        self._groups.add(pid)
        if self.requested.is_set():
            _kill_group(pid)

    def unregister_child(self, pid: int) -> None:
        """Forget a child that is about to be reaped, because its pid may then be reused."""
        if pid in self._groups:
            self._ended_sec += used_cpu_sec(pid)
        self._groups.discard(pid)

    def children_cpu_sec(self) -> float:
        """Return the CPU seconds that this worker's children have used so far."""
        return self._ended_sec + sum(map(used_cpu_sec, tuple(self._groups)))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


STOP = Shutdown()
