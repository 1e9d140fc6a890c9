"""How often somebody may ask: a bucket of a minute's requests that fills steadily, in each coordinator."""

import math
import time
from collections.abc import Callable, Hashable
from typing import Final

from mallorn.core.errors import TooMany

# Full ones tell nothing: they are forgotten when there are so many, as addresses have no end.
MOST_BUCKETS: Final = 10_000


class RateLimit:
    """Buckets by who asks; none where `per_minute` is 0."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._left: dict[Hashable, tuple[float, float]] = {}  # requests, as of when

    def take(self, who: Hashable, name: str) -> None:
        """Count a request of whom errors call `name`. Raises TooMany, which says when to come again."""
        if not self._most:
            return
        now_sec = self._clock()
        if len(self._left) >= MOST_BUCKETS:
            self._left = {who: left for who, left in self._left.items() if now_sec - left[1] < 60}
        left, since_sec = self._left.get(who, (float(self._most), now_sec))
        left = min(float(self._most), left + (now_sec - since_sec) * self._most / 60)
        if left < 1:
            self._left[who] = left, now_sec
            wait_sec = math.ceil((1 - left) * 60 / self._most)
            raise TooMany(
                f"{name} may make {self._most} requests a minute",
                hint=f"come again in {wait_sec} s",
                retry_sec=wait_sec,
            )
        self._left[who] = left - 1, now_sec
