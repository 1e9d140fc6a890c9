"""Which of the jobs that somebody follows have moved: one question for all of them, a few times a second."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

import anyio
from fastapi.concurrency import run_in_threadpool

from db.repositories.jobs import Jobs
from db.session import Database
from mallorn.core.errors import Unavailable
from mallorn.core.states import FINAL
from mallorn.core.surviving_loop import tell

log = logging.getLogger(__name__)
FRESH_SEC: Final = 0.25
Mark = tuple[int, str] | None  # how many events, and the state; None: the job is gone
UNKNOWN: Final = (-1, "")


class EventPoller:
    """Of one app; whoever follows a job is woken when that has moved, and does nothing until then."""

    def __init__(self, database: Database, stopping: Event) -> None:
        self._database = database
        self._stopping = stopping
        self._followed: Counter[str] = Counter()
        self._marks: dict[str, Mark] = {}
        self._moves: dict[str, anyio.Event] = {}
        self._reading: dict[Hashable, asyncio.Future[Any]] = {}
        self._beating: asyncio.Task[None] | None = None
        self.trouble = ""  # why the last question brought nothing, in words

    @contextmanager
    def following(self, job_id: str) -> Iterator[None]:
        """As long as the block lasts, this job is asked about."""
        self._followed[job_id] += 1
        try:
            yield
        finally:
            self._followed[job_id] -= 1
            if not self._followed[job_id]:
                del self._followed[job_id]

    async def moved(self, job_id: str, after: int, within_sec: float = 0.0) -> bool:
        """Whether a job has events behind this one, has ended, or is gone; waits so long for that."""
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat())
        if self._may_have(job_id, after):
            return True
        with anyio.move_on_after(within_sec):
            await self._moves.setdefault(job_id, anyio.Event()).wait()
        return self._may_have(job_id, after)

    async def together(self, key: Hashable, read: Callable[[], Awaitable[Any]]) -> Any:
        """What is read; those who ask for the same while it is being read share it."""
        if key not in self._reading:
            self._reading[key] = reading = asyncio.ensure_future(read())
            reading.add_done_callback(lambda _: self._reading.pop(key))
        return await asyncio.shield(self._reading[key])

    def _may_have(self, job_id: str, after: int) -> bool:
        mark = self._marks.get(job_id, UNKNOWN)  # the next beat tells
        return mark is None or mark[0] > after or mark[1] in FINAL

    async def _beat(self) -> None:
        while self._followed:
            marks = await self._ask()
            for job_id in [*self._moves]:
                if self._stopping.is_set() or marks.get(job_id) != self._marks.get(job_id, UNKNOWN):
                    self._moves.pop(job_id).set()
            self._marks = marks
            await anyio.sleep(FRESH_SEC)
        self._marks = {}

    async def _ask(self) -> dict[str, Mark]:
        try:
            marks = await run_in_threadpool(self._look, list(self._followed))
            self.trouble = ""
            return marks
        except Unavailable as error:
            self.trouble = error.message
            log.warning("the events of %s jobs wait for the database: %s", len(self._followed), error.message)
        except Exception as error:  # whoever follows would be cut off, come again, and be cut off again
            self.trouble = f"{type(error).__name__}: {error}"
            tell("those who follow jobs hear nothing new", error)
        return self._marks

    def _look(self, job_ids: Sequence[str]) -> dict[str, Mark]:
        with self._database.session() as session:
            return dict.fromkeys(job_ids) | Jobs(session).marks(job_ids)
