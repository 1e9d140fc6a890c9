"""Rate limit: a token bucket per caller with a minute's requests, in each coordinator."""

import math
import time
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Final

from mallorn.core.errors import TooMany

# Above this number the least recently used bucket is dropped, as addresses are unlimited.
MOST_BUCKETS: Final = 10_000


class RateLimit:
    """Token buckets by caller; no limit if `per_minute` is 0."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._lock = Lock()
        self._left: dict[Hashable, tuple[float, float]] = {}  # (requests left, time)

    def take(self, who: Hashable, name: str) -> None:
        """Count a request of `who` (`name` in errors). Raises TooMany with a retry delay."""
        if not self._most:
            return
        with self._lock:
            now_sec = self._clock()
            left, since_sec = self._left.pop(who, (float(self._most), now_sec))
            left = min(float(self._most), left + (now_sec - since_sec) * self._most / 60)
            self._left[who] = left - 1 if left >= 1 else left, now_sec
            if len(self._left) > MOST_BUCKETS:
                del self._left[next(iter(self._left))]
        if left < 1:
            wait_sec = math.ceil((1 - left) * 60 / self._most)
            raise TooMany(
                f"{name} may make {self._most} requests a minute",
                hint=f"retry in {wait_sec} s",
                retry_sec=wait_sec,
            )
