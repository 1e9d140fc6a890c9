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

AGAIN_SEC: Final = 60
MOST_AT_ONCE: Final = 4  # of the 40 threads that serve all requests


def check_work_quotas(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's jobs, including uncommitted ones, exceed a quota."""
    usage, jobs, trials = Usage(session), settings.quota_jobs, settings.quota_trials
    if (targets := settings.quota_targets) and usage.count_targets(owner) > targets:
        message = f"{owner} may use {targets:,} targets, and this is another one"
        raise TooMany(message, hint="name the target of an earlier job: mallorn jobs", retry_sec=AGAIN_SEC)
    if jobs and (total := usage.count_active_jobs(owner)) > jobs:
        message = f"{owner} may have {jobs} active jobs, and this is number {total}"
        raise TooMany(message, hint="wait until a job ends, or: mallorn jobs pause JOB", retry_sec=AGAIN_SEC)
    if trials and (total := usage.count_remaining_trials(owner)) > trials:
        raise TooMany(
            f"{owner} may have {trials:,} pending trials, not {total:,}",
            hint="submit the job with fewer --trials, or wait until a job ends",
            retry_sec=AGAIN_SEC,
        )


def check_storage(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's models, including uncommitted ones, exceed the quota."""
    _check_bytes(owner, settings.quota_model_bytes, Usage(session).model_bytes(owner))


class ArrivingBytes:
    """Counts each owner's running uploads and their bytes, and limits them by quotas.

    They are counted apart from stored models, so that a stored model can be uploaded again.
    """

    def __init__(self, most_bytes: int, most_uploads: int) -> None:
        self._most_bytes = most_bytes
        self._most_uploads = most_uploads
        self._lock = Lock()
        self._arriving: Counter[str] = Counter()
        self._uploads: Counter[str] = Counter()

    @contextmanager
    def track_upload(self, owner: str) -> Iterator[Callable[[int], None]]:
        """Yield a function to report the upload's current size, which may raise TooMany.

        Raises TooMany if the owner has too many running uploads.
        """
        counted_bytes = 0

        def report_size(size_bytes: int) -> None:
            nonlocal counted_bytes
            new_bytes = max(0, size_bytes - counted_bytes)
            with self._lock:
                _check_bytes(owner, self._most_bytes, self._arriving[owner] + new_bytes)
                self._arriving[owner] += new_bytes
            counted_bytes += new_bytes

        with self._lock:
            if self._most_uploads and self._uploads[owner] >= self._most_uploads:
                message = f"{owner} already has {self._most_uploads:,} running uploads"
                raise TooMany(message, hint="retry when one is complete", retry_sec=AGAIN_SEC)
            self._uploads[owner] += 1
        try:
            yield report_size
        finally:
            with self._lock:
                self._arriving[owner] -= counted_bytes
                self._uploads[owner] -= 1
                self._arriving += Counter()  # drops owners with a count of 0
                self._uploads += Counter()


class FewAtOnce:
    """Limits the concurrent slow requests of each owner."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()
        self._lock = Lock()

    @contextmanager
    def hold_request_slot(self, owner: str) -> Iterator[None]:
        """Count a slow request until the block ends. Raises TooMany above MOST_AT_ONCE."""
        with self._lock:
            if self._running[owner] >= MOST_AT_ONCE:
                message = f"{owner} already waits for {MOST_AT_ONCE} slow requests"
                raise TooMany(message, hint="retry in a second", retry_sec=1)
            self._running[owner] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[owner] -= 1
                self._running += Counter()


def _check_bytes(owner: str, quota: int, total: int) -> None:
    if quota and total > quota:
        message = f"{owner} may store {quota:,} bytes of models, not {total:,}"
        raise TooMany(message, hint="mallorn models rm MODEL", retry_sec=AGAIN_SEC)


# Above this number the least recently used bucket is dropped, as addresses are unlimited.
MOST_BUCKETS: Final = 10_000


class RateLimit:
    """Token buckets by caller; no limit if `per_minute` is 0."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._lock = Lock()
        self._left: dict[Hashable, tuple[float, float]] = {}  # (requests left, time)

    def count_request(self, caller: Hashable, name: str) -> None:
        """Count a request of `caller` (`name` in errors). Raises TooMany with a retry delay."""
        if not self._most:
            return
        with self._lock:
            now_sec = self._clock()
            left, since_sec = self._left.pop(caller, (float(self._most), now_sec))
            left = min(float(self._most), left + (now_sec - since_sec) * self._most / 60)
            self._left[caller] = left - 1 if left >= 1 else left, now_sec
            if len(self._left) > MOST_BUCKETS:
                del self._left[next(iter(self._left))]
        if left < 1:
            wait_sec = math.ceil((1 - left) * 60 / self._most)
            message = f"{name} has made more than the {self._most} requests a minute that are allowed"
            raise TooMany(message, hint=f"retry in {wait_sec} s", retry_sec=wait_sec)
