"""Work that gives way: a child computes only while nobody times on this host."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from workers.host.cores import Cores

SLICE_SEC: Final = 0.2  # what a candidate may have to wait for the end of


class Pausable(Protocol):
    """A child process."""

    def suspend(self) -> None: ...
    def resume(self) -> None: ...


@contextmanager
def giving_way(child: Pausable, cores: Cores | None = None, slice_sec: float = SLICE_SEC) -> Iterator[None]:
    """Stop the child before anybody here begins to time, and let it go on when that is over."""
    over = threading.Event()
    work = (child, cores or Cores(), slice_sec, over)
    threading.Thread(target=_in_slices, args=work, name="giving-way", daemon=True).start()
    try:
        yield
    finally:
        # Not joined: it may wait for whoever times, and does nothing once it is over.
        over.set()


def _in_slices(child: Pausable, cores: Cores, slice_sec: float, over: threading.Event) -> None:
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
