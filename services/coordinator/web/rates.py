"""How often a key may ask: a bucket of a minute's requests that fills steadily, in each coordinator."""

import math
import time
from collections.abc import Callable

from mallorn.core.errors import TooMany
from services.coordinator.web.callers import Caller


class Rates:
    """Buckets by key; none where `per_minute` is 0."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # requests, as of when

    def take(self, caller: Caller) -> None:
        """Count a request. Raises TooMany, which says when to come again."""
        if not self._most:
            return
        who, now_sec = (caller.owner, caller.key_id), self._clock()
        left, since_sec = self._left.get(who, (float(self._most), now_sec))
        left = min(float(self._most), left + (now_sec - since_sec) * self._most / 60)
        if left < 1:
            self._left[who] = left, now_sec
            wait_sec = math.ceil((1 - left) * 60 / self._most)
            raise TooMany(
                f"{caller.owner} may make {self._most} requests a minute",
                hint=f"come again in {wait_sec} s",
                retry_sec=wait_sec,
            )
        self._left[who] = left - 1, now_sec
