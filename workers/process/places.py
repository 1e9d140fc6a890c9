"""Places of a worker: how many rounds and stages it does at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Places:
    """Counts the work that a worker does; at most `width` at a time."""

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self._taken = 0
        self._lock = threading.Lock()

    @property
    def is_one_free(self) -> bool:
        return self._taken < self.width

    @contextmanager
    def take(self) -> Iterator[bool]:
        """Take a place for the block, if one is free; yield whether it was."""
        with self._lock:
            is_free = self.is_one_free
            self._taken += is_free
        try:
            yield is_free
        finally:
            with self._lock:
                self._taken -= is_free
