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

from mallorn.core.errors import Unavailable
from mallorn.core.states import FINAL
from mallorn.core.values.event import EVENT, read_event
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Event
from mallorn.services.coordinator.web.app_parts import AppParts, PartsDep
from mallorn.services.coordinator.web.authenticator import AGAIN_SEC
from mallorn.services.coordinator.web.caller_dependencies import OwnerDep, read_credentials
from mallorn.services.coordinator.web.response_types import MAX_INT, REF, describe_response

log = logging.getLogger(__name__)
router = APIRouter(prefix="/jobs", tags=["jobs"])
MEDIA_TYPE: Final = "text/event-stream"
POLL_SEC: Final = 0.25  # retry interval while the database does not answer
HEARTBEAT_SEC: Final = 15.0
BATCH: Final = 100
News = tuple[list[Event], bool]  # the next events of a job, and whether they are the last
SCHEMA: Final = EVENT.json_schema(ref_template=REF, mode="serialization")
SCHEMAS: Final[dict[str, object]] = SCHEMA.pop("$defs")  # referenced schemas by name
STREAM: Final = describe_response(
    MEDIA_TYPE,
    "Events until the job ends. `id` increases, `event` is the kind, `data` is JSON of this "
    "schema. Later versions may add kinds.",
    SCHEMA,
)


@router.get("/{job_id}/events", response_class=StreamingResponse, responses=STREAM)
async def stream_job_events(
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
    first = await run_in_threadpool(read_next_events, parts, owner, job_id, start)
    may_stay = partial(parts.door.is_still_valid, read_credentials(request))
    events = stream_events(parts, owner, job_id, start, first, may_stay)
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


def read_next_events(parts: AppParts, owner: str, job_id: str, last_event: int) -> News:
    """Return a job's next events, and whether they are the last. Raises NotFound."""
    # One snapshot: if the job has ended here, all its events are visible.
    with parts.database.session() as session:
        job = Jobs(session).get(job_id, owner)
        events = Events(session).after(job_id, last_event, BATCH)
        return events, job.state in FINAL and len(events) < BATCH


async def stream_events(
    parts: AppParts, owner: str, job_id: str, last_event: int, first: News, may_stay: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield server-sent events until the job ends, this process stops or access is lost."""
    (events, is_last), last_check_sec = first, time.monotonic()
    with parts.pulse.follow_job(job_id):
        while True:
            for event in events:
                data = json.dumps(read_event(event.kind, event.payload).to_client_json())
                # JSON contains no line break, which would end the event early.
                yield f"id: {event.seq}\nevent: {event.kind}\ndata: {data}\n\n"
                last_event = event.seq
            if is_last or parts.stopping.is_set():
                return
            if time.monotonic() - last_check_sec >= AGAIN_SEC:
                if not await run_in_threadpool(may_stay):
                    return
                last_check_sec = time.monotonic()
            if len(events) == BATCH or await parts.pulse.wait_for_events(job_id, last_event, HEARTBEAT_SEC):
                query = partial(run_in_threadpool, read_next_events, parts, owner, job_id, last_event)
                try:
                    news: News = await parts.pulse.share_concurrent_call((owner, job_id, last_event), query)
                    events, is_last = news
                except Unavailable as error:
                    log.warning("the events of job %s wait for the database: %s", job_id, error.message)
                    await anyio.sleep(POLL_SEC)
                    events = []
            else:
                events = []
                # A comment, so that proxies keep the connection open.
                yield ": still here\n\n"
