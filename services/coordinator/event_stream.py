"""Streams the events of a job as server-sent events."""

import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, Final

import anyio
from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from db.repositories.job_events_and_warnings import Events
from db.repositories.jobs import Jobs
from db.tables import Event
from mallorn.core.errors import Unavailable
from mallorn.core.states import FINAL
from mallorn.core.values.event import EVENT, read_event
from services.coordinator.web.app_context import AppContext, PartsDep
from services.coordinator.web.authenticator import AGAIN_SEC
from services.coordinator.web.caller_dependencies import OwnerDep, shown
from services.coordinator.web.response_types import MAX_INT, REF, described

log = logging.getLogger(__name__)
router = APIRouter(prefix="/jobs", tags=["jobs"])
MEDIA_TYPE: Final = "text/event-stream"
POLL_SEC: Final = 0.25  # retry interval while the database does not answer
HEARTBEAT_SEC: Final = 15.0
BATCH: Final = 100
News = tuple[list[Event], bool]  # the next events of a job, and whether they are the last
SCHEMA: Final = EVENT.json_schema(ref_template=REF, mode="serialization")
SCHEMAS: Final[dict[str, object]] = SCHEMA.pop("$defs")  # referenced schemas by name
STREAM: Final = described(
    MEDIA_TYPE,
    "Events until the job ends. `id` increases, `event` is the kind, `data` is JSON of this "
    "schema. Later versions may add kinds.",
    SCHEMA,
)


@router.get("/{job_id}/events", response_class=StreamingResponse, responses=STREAM)
async def job_events(
    parts: PartsDep,
    owner: OwnerDep,
    request: Request,
    job_id: str,
    after: Annotated[int, Query(ge=0, le=MAX_INT, description="Start after this event.")] = 0,
    last_event_id: Annotated[
        int, Header(ge=0, le=MAX_INT, description="As `after`; reconnecting browsers send it.")
    ] = 0,
) -> StreamingResponse:
    """Stream the events of a job as server-sent events, until the job ends."""
    start = last_event_id or after
    # A missing job is a 404, not a stream.
    first = await run_in_threadpool(news, parts, owner, job_id, start)
    may_stay = partial(parts.door.still_open, *shown(request))
    events = stream(parts, owner, job_id, start, first, may_stay)
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


def news(parts: AppContext, owner: str, job_id: str, last_event: int) -> News:
    """Return a job's next events, and whether they are the last. Raises NotFound."""
    # One snapshot: if the job has ended here, all its events are visible.
    with parts.database.session() as session:
        job = Jobs(session).get(job_id, owner)
        events = Events(session).after(job_id, last_event, BATCH)
        return events, job.state in FINAL and len(events) < BATCH


async def stream(
    parts: AppContext, owner: str, job_id: str, last_event: int, first: News, may_stay: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield server-sent events until the job ends, this process stops or access is lost."""
    (events, is_last), last_check_sec = first, time.monotonic()
    with parts.pulse.following(job_id):
        while True:
            for event in events:
                data = json.dumps(read_event(event.kind, event.payload).told())
                # JSON contains no line break, which would end the event early.
                yield f"id: {event.seq}\nevent: {event.kind}\ndata: {data}\n\n"
                last_event = event.seq
            if is_last or parts.stopping.is_set():
                return
            if time.monotonic() - last_check_sec >= AGAIN_SEC:
                if not await run_in_threadpool(may_stay):
                    return
                last_check_sec = time.monotonic()
            if len(events) == BATCH or await parts.pulse.moved(job_id, last_event, HEARTBEAT_SEC):
                events, is_last = await _shared_news(parts, owner, job_id, last_event)
            else:
                events = []
                # A comment, so that proxies keep the connection open.
                yield ": still here\n\n"


async def _shared_news(parts: AppContext, owner: str, job_id: str, last_event: int) -> News:
    """Return `news`, or none if the database is down; concurrent calls share a query."""
    try:
        query = partial(run_in_threadpool, news, parts, owner, job_id, last_event)
        result: News = await parts.pulse.together((owner, job_id, last_event), query)
        return result
    except Unavailable as error:
        log.warning("the events of job %s wait for the database: %s", job_id, error.message)
        await anyio.sleep(POLL_SEC)
        return [], False
