"""Loops of services that survive errors: one is logged, and ends only a part of a turn."""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mallorn.core.errors import StorageFull, Unavailable

#: An error that repeats in every turn would otherwise fill the log.
TOLD_EVERY_SEC: Final = 60.0
_logged_sec: dict[tuple[str, type[Exception]], float] = {}
log = logging.getLogger(__name__)


class Turn:
    """A turn of a service's loop, which has run without a gap for `steady_sec` seconds."""

    def __init__(self, steady_sec: float = math.inf) -> None:
        self.steady_sec = steady_sec
        self.whole = True
        self.away = False  # the database is unavailable, so similar parts can be skipped

    @contextmanager
    def log_part_errors(self, words: str) -> Iterator[None]:
        """Run a part of the turn in the block; log its error instead of raising it."""
        try:
            yield
        except Exception as error:
            self.whole, self.away = False, isinstance(error, Unavailable | StorageFull)
            log_survived_error(words, error)


def log_survived_error(words: str, error: Exception) -> None:
    """Log an error that a loop survives, at most once a minute per part and error class."""
    now_sec, key = time.monotonic(), (words, type(error))
    if now_sec - _logged_sec.get(key, -math.inf) >= TOLD_EVERY_SEC:
        _logged_sec[key] = now_sec
        log.error("%s: %s: %s", words, type(error).__name__, error, exc_info=error)
