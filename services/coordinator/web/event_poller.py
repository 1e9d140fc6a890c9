"""Polls the database for news of all followed jobs, with one query every FRESH_SEC."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any, Final

import anyio
from fastapi.concurrency import run_in_threadpool

from mallorn.core.errors import Unavailable
from mallorn.core.log_setup import log_survived_error
from mallorn.core.states import FINAL
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database

log = logging.getLogger(__name__)
FRESH_SEC: Final = 0.25
Mark = tuple[int, str] | None  # (number of events, state); None: the job was deleted
UNKNOWN: Final = (-1, "")


class EventPoller:
    """Wakes event streams when their jobs have new events; an app has one poller."""

    def __init__(self, database: Database, stopping: Event) -> None:
        self._database = database
        self._stopping = stopping
        self._followed: Counter[str] = Counter()
        self._marks: dict[str, Mark] = {}
        self._moves: dict[str, anyio.Event] = {}
        self._reading: dict[Hashable, asyncio.Future[Any]] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self.trouble = ""  # why the last poll failed, in words

    @contextmanager
    def follow_job(self, job_id: str) -> Iterator[None]:
        """Include this job in the polls as long as the block runs."""
        self._followed[job_id] += 1
        try:
            yield
        finally:
            self._followed[job_id] -= 1
            if not self._followed[job_id]:
                del self._followed[job_id]

    async def wait_for_events(self, job_id: str, last_event: int, within_sec: float = 0.0) -> bool:
        """Wait up to `within_sec` for a job's later events; return whether any may exist."""
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll())
        if self.may_have(job_id, last_event):
            return True
        with anyio.move_on_after(within_sec):
            await self._moves.setdefault(job_id, anyio.Event()).wait()
        return self.may_have(job_id, last_event)

    async def share_concurrent_call(self, key: Hashable, read: Callable[[], Awaitable[Any]]) -> Any:
        """Return the result of `read`; concurrent calls with the same key share one call."""
        if key not in self._reading:
            self._reading[key] = reading = asyncio.ensure_future(read())
            reading.add_done_callback(lambda _: self._reading.pop(key))
        return await asyncio.shield(self._reading[key])

    def may_have(self, job_id: str, last_event: int) -> bool:
        mark = self._marks.get(job_id, UNKNOWN)  # unknown until the next poll
        return mark is None or mark[0] > last_event or mark[1] in FINAL

    async def _poll(self) -> None:
        while self._followed:
            marks = self._marks
            try:
                marks = await run_in_threadpool(self._read_marks, list(self._followed))
                self.trouble = ""
            except Unavailable as error:
                self.trouble = error.message
                count = len(self._followed)
                log.warning("the events of %s jobs wait for the database: %s", count, error.message)
            except Exception as error:  # streams would break, reconnect and break again
                self.trouble = f"{type(error).__name__}: {error}"
                log_survived_error("event streams get no new events", error)
            for job_id in [*self._moves]:
                if self._stopping.is_set() or marks.get(job_id) != self._marks.get(job_id, UNKNOWN):
                    self._moves.pop(job_id).set()
            self._marks = marks
            await anyio.sleep(FRESH_SEC)
        self._marks = {}

    def _read_marks(self, job_ids: Sequence[str]) -> dict[str, Mark]:
        with self._database.session() as session:
            return dict.fromkeys(job_ids) | Jobs(session).read_event_marks(job_ids)
