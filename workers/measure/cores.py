"""Whose turn it is at the cores of this host: who times has them alone, who merely computes shares them.

A lock on a file: the kernel takes it from a process that dies. Containers that share no directory for
temporary files do not see each other's.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from mallorn.core.errors import Unavailable

LOCK_NAME: Final = "mallorn-cores.lock"
LOOK_SEC: Final = 0.005


class Cores:
    """This process's claim on the cores of its host."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or Path(tempfile.gettempdir()) / LOCK_NAME
        self._fd: int | None = None

    def take(self, wait_sec: float) -> bool:
        """Have the cores alone; False when they stayed in use for so long. Those that we have stay ours."""
        deadline_sec = time.monotonic() + wait_sec
        while not self._claimed(fcntl.LOCK_EX):
            if time.monotonic() > deadline_sec:
                return False
            time.sleep(LOOK_SEC)
        return True

    def share(self) -> None:
        """Wait until nobody times; from then on nobody begins to before we give the cores back."""
        while not self._claimed(fcntl.LOCK_SH):
            time.sleep(LOOK_SEC)

    def give_back(self) -> None:
        """Let others have their turn."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _claimed(self, kind: int) -> bool:
        if self._fd is not None:
            return True
        found_fd = _open(self._path)
        try:
            fcntl.flock(found_fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(found_fd)
            return False
        self._fd = found_fd
        return True


@contextmanager
def alone(wait_sec: float, cores: Cores | None = None) -> Iterator[None]:
    """Time something while nobody else computes here. Raises Unavailable when the cores stay in use."""
    cores = cores or Cores()
    if not cores.take(wait_sec):
        raise Unavailable(
            f"others timed on this machine for {wait_sec:g} s", hint="mallorn workers   (who does what)"
        )
    try:
        yield
    finally:
        cores.give_back()


def _open(path: Path) -> int:
    # Another user's file in a shared directory may be opened, but not with the flag that creates one.
    with suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
