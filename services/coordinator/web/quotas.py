"""How much an owner may take up at a time, where the settings say so."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.owner_usage import Usage
from mallorn.core.errors import TooMany
from mallorn.core.settings import Settings

AGAIN_SEC: Final = 60
MOST_AT_ONCE: Final = 4  # of the forty threads that answer all requests


def check_work(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's jobs, those of this transaction too, are more than they may be."""
    usage, jobs, trials = Usage(session), settings.quota_jobs, settings.quota_trials
    if jobs and (found := usage.jobs(owner)) > jobs:
        raise TooMany(
            f"{owner} may have {jobs} jobs at a time, and this would be {found}",
            hint="wait until one ends, or: mallorn pause JOB",
            retry_sec=AGAIN_SEC,
        )
    if trials and (found := usage.trials(owner)) > trials:
        raise TooMany(
            f"{owner} may have {trials:,} trials ahead, and this would make {found:,}",
            hint="ask for fewer with --trials, or wait until a job ends",
            retry_sec=AGAIN_SEC,
        )


def check_storage(session: Session, settings: Settings, owner: str) -> None:
    """Raise TooMany if the owner's models, those of this transaction too, take more than they may."""
    _check_bytes(owner, settings.quota_model_bytes, Usage(session).model_bytes(owner))


class ArrivingBytes:
    """Bytes of models that are on their way into this coordinator, by owner; no more than those kept may be.

    They count apart from those kept: who sends a model again that is kept already, may.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._arriving: Counter[str] = Counter()

    @contextmanager
    def upload(self, owner: str) -> Iterator[Callable[[int], None]]:
        """Give what to call with the size of an upload as it grows; it raises TooMany beyond the quota."""
        counted = 0

        def grow(size_bytes: int) -> None:
            nonlocal counted
            more = max(0, size_bytes - counted)
            _check_bytes(owner, self._most_bytes, self._arriving[owner] + more)
            self._arriving[owner] += more
            counted += more

        try:
            yield grow
        finally:
            self._arriving[owner] -= counted
            self._arriving += Counter()  # drops those without any


class FewAtOnce:
    """Lets an owner have a few answers at a time of the kind that takes long."""

    def __init__(self) -> None:
        self._under_way: Counter[str] = Counter()
        self._lock = Lock()

    @contextmanager
    def one(self, owner: str) -> Iterator[None]:
        """Count one more until the block ends. Raises TooMany."""
        with self._lock:
            if self._under_way[owner] >= MOST_AT_ONCE:
                raise TooMany(
                    f"{owner} waits for {MOST_AT_ONCE} such answers already",
                    hint="come again in a second",
                    retry_sec=1,
                )
            self._under_way[owner] += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way[owner] -= 1
                self._under_way += Counter()


def _check_bytes(owner: str, most: int, found: int) -> None:
    if most and found > most:
        raise TooMany(
            f"{owner} may keep {most:,} bytes of models, and this would make {found:,}",
            hint="mallorn models rm MODEL",
            retry_sec=AGAIN_SEC,
        )
