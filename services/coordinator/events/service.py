"""Follows a job's events in the database."""

import json
import time
from collections.abc import AsyncIterator
from typing import Final

import anyio
from fastapi.concurrency import run_in_threadpool

from db.repositories.events import Events
from db.repositories.jobs import Jobs
from db.tables import Event
from mallorn.core.states import JobState
from mallorn.core.values.event import read_event
from services.coordinator.web.parts import Parts

POLL_SEC: Final = 0.5
HEARTBEAT_SEC: Final = 15.0
BATCH: Final = 100


def news(parts: Parts, owner: str, job_id: str, after: int) -> tuple[list[Event], bool]:
    """The next events, and whether they are the last. Raises NotFound, also for another owner's job."""
    # One snapshot: a job seen as ended shows all its events.
    with parts.database.session() as session:
        job = Jobs(session).get(job_id, owner)
        events = Events(session).after(job_id, after, BATCH)
        return events, JobState(job.state).final and len(events) < BATCH


async def stream(parts: Parts, owner: str, job_id: str, after: int) -> AsyncIterator[str]:
    """Server-sent events until the job or this process ends; comments in between keep proxies awake."""
    last_sent = time.monotonic()
    while True:
        events, ended = await run_in_threadpool(news, parts, owner, job_id, after)
        for event in events:
            yield format_event(event)
            after, last_sent = event.seq, time.monotonic()
        if ended or parts.stopping.is_set():
            return
        if time.monotonic() - last_sent >= HEARTBEAT_SEC:
            yield ": still here\n\n"
            last_sent = time.monotonic()
        if len(events) < BATCH:
            await anyio.sleep(POLL_SEC)


def format_event(event: Event) -> str:
    """One event on the wire; JSON holds no line break that could end it early."""
    told = read_event(event.kind, event.payload).told()
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {json.dumps(told)}\n\n"
