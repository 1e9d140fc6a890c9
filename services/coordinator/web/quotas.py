"""Limits per owner: quotas from the settings, concurrent slow requests, and a rate limit."""

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from sqlalchemy.orm import Session

from mallorn.core.errors import TooMany
from mallorn.core.settings import Settings
from mallorn.db.repositories.access_control import Usage

MOST_AT_ONCE: Final = 4  # slow requests of an owner; 40 threads serve all requests
REMOVE_MODELS: Final = "mallorn models rm MODEL"


def check_work_quotas(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's jobs, including uncommitted ones, exceed a quota."""
    usage, jobs, trials = Usage(session), settings.quota_jobs, settings.quota_trials
    if (targets := settings.quota_targets) and usage.count_targets(owner) > targets:
        message = f"{owner} may use {targets:,} targets, and this is another one"
        raise TooMany(message, hint="name the target of an earlier job: mallorn jobs")
    if jobs and (total := usage.count_active_jobs(owner)) > jobs:
        message = f"{owner} may have {jobs} active jobs, and this is number {total}"
        raise TooMany(message, hint="wait until a job ends, or: mallorn jobs pause JOB")
    if trials and (total := usage.count_remaining_trials(owner)) > trials:
        message = f"{owner} may have {trials:,} pending trials, not {total:,}"
        raise TooMany(message, hint="submit the job with fewer --trials, or wait until a job ends")


def check_storage(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's models, including uncommitted ones, exceed the quota."""
    quota, total = settings.quota_model_bytes, Usage(session).model_bytes(owner)
    if quota and total > quota:
        message = f"{owner} may have {quota:,} bytes of models, not {total:,}"
        raise TooMany(message, hint=REMOVE_MODELS)


class ConcurrentLimit:
    """Limits an amount, summed over the running requests of an owner or key; 0: no limit."""

    def __init__(self, limit: int, noun: str, hint: str = "retry in a second", retry_sec: int = 1) -> None:
        self.limit = limit
        self._noun = noun
        self._hint = hint
        self._retry_sec = retry_sec
        self._lock = Lock()
        self.totals: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def track_request(self, owner: str, key_id: str = "") -> Iterator[Callable[[int], None]]:
        """Yield a function that raises the request's amount, or TooMany above the limit."""
        own_amount = 0

        def raise_amount(amount: int) -> None:
            nonlocal own_amount
            added_amount = max(0, amount - own_amount)
            with self._lock:
                total = self.totals[owner, key_id] + added_amount
                if self.limit and total > self.limit:
                    message = f"{owner} may have {self.limit:,} {self._noun}, not {total:,}"
                    raise TooMany(message, hint=self._hint, retry_sec=self._retry_sec)
                self.totals[owner, key_id] = total
            own_amount += added_amount

        try:
            yield raise_amount
        finally:
            with self._lock:
                self.totals[owner, key_id] -= own_amount
                self.totals += Counter()  # drops owners with a total of 0

    @contextmanager
    def count_request(self, owner: str, key_id: str = "") -> Iterator[None]:
        """Count a request as 1 until the block ends. Raises TooMany above the limit."""
        with self.track_request(owner, key_id) as raise_amount:
            raise_amount(1)
            yield


# Above this number the least recently used bucket is dropped, as addresses are unlimited.
MOST_BUCKETS: Final = 10_000


class RateLimit:
    """Token buckets by caller; no limit if `per_minute` is 0."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._lock = Lock()
        self.buckets: dict[Hashable, tuple[float, float]] = {}  # (requests left, time)

    def count_request(self, caller: Hashable, name: str) -> None:
        """Count a request of `caller` (`name` in errors). Raises TooMany with a retry delay."""
        if not self._most:
            return
        with self._lock:
            now_sec = self._clock()
            left, since_sec = self.buckets.pop(caller, (float(self._most), now_sec))
            left = min(float(self._most), left + (now_sec - since_sec) * self._most / 60)
            self.buckets[caller] = left - 1 if left >= 1 else left, now_sec
            if len(self.buckets) > MOST_BUCKETS:
                del self.buckets[next(iter(self.buckets))]
        if left < 1:
            wait_sec = math.ceil((1 - left) * 60 / self._most)
            message = f"{name} has made more than the {self._most} requests a minute that are allowed"
            raise TooMany(message, hint=f"retry in {wait_sec} s", retry_sec=wait_sec)
