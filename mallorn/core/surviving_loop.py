"""Loops that must live: what a part of one turn raises is told, and costs that part alone."""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mallorn.core.errors import StorageFull, Unavailable

#: One that fails in every turn would fill the log.
TOLD_EVERY_SEC: Final = 60.0
_told_sec: dict[tuple[str, type[Exception]], float] = {}
log = logging.getLogger(__name__)


class Turn:
    """One turn of such a loop; `steady_sec` is for how long its turns have been coming."""

    def __init__(self, steady_sec: float = math.inf) -> None:
        self.steady_sec = steady_sec
        self.whole = True
        self.away = False  # the database is: many parts of one kind need not all wait for it

    @contextmanager
    def part(self, words: str) -> Iterator[None]:
        """What is done whatever became of the parts before it."""
        try:
            yield
        except Exception as error:
            self.whole, self.away = False, isinstance(error, Unavailable | StorageFull)
            tell(words, error)


def tell(words: str, error: Exception) -> None:
    """Log what a loop survives, with its traceback: the same thing once a minute."""
    now_sec, what = time.monotonic(), (words, type(error))
    if now_sec - _told_sec.get(what, -math.inf) >= TOLD_EVERY_SEC:
        _told_sec[what] = now_sec
        log.error("%s: %s: %s", words, type(error).__name__, error, exc_info=error)
