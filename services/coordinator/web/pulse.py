"""Which of the jobs that somebody follows have moved: one question for all of them, a few times a second."""

import logging
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import anyio
from fastapi.concurrency import run_in_threadpool

from db.repositories.jobs import Jobs
from db.session import Database
from mallorn.core.errors import Unavailable
from mallorn.core.states import FINAL
from mallorn.core.surviving import tell

log = logging.getLogger(__name__)
FRESH_SEC: Final = 0.25


class Pulse:
    """Of one app; whoever follows a job asks it instead of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._followed: Counter[str] = Counter()
        self._marks: dict[str, tuple[int, str]] = {}
        self._asked_sec = -math.inf
        self._lock = anyio.Lock()
        self.trouble = ""  # why the last question brought nothing, in words

    @contextmanager
    def following(self, job_id: str) -> Iterator[None]:
        """As long as the block lasts, this job is asked about."""
        self._followed[job_id] += 1
        try:
            yield
        finally:
            self._followed[job_id] -= 1
            self._followed += Counter()  # without those that nobody follows any more

    async def moved(self, job_id: str, after: int) -> bool:
        """Whether a job has events behind this one, has ended, or is gone."""
        async with self._lock:
            if time.monotonic() - self._asked_sec >= FRESH_SEC:
                await self._ask()
        if job_id not in self._marks:  # or nobody has asked about it yet
            return True
        count, state = self._marks[job_id]
        return count > after or state in FINAL

    async def _ask(self) -> None:
        try:
            self._marks = await run_in_threadpool(self._look, list(self._followed))
            self.trouble = ""
        except Unavailable as error:
            self.trouble = error.message
            log.warning("the events of %s jobs wait for the database: %s", len(self._followed), error.message)
        except Exception as error:  # whoever follows would be cut off, come again, and be cut off again
            self.trouble = f"{type(error).__name__}: {error}"
            tell("those who follow jobs hear nothing new", error)
        self._asked_sec = time.monotonic()

    def _look(self, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        with self._database.session() as session:
            return Jobs(session).marks(job_ids)
