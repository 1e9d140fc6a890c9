"""The route of a job's events."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from services.coordinator.events import service
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/jobs", tags=["jobs"])
MEDIA_TYPE: Final = "text/event-stream"
# An event's number stands in a column of 32 bits.
MAX_SEQ: Final = 2**31 - 1
STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Events until the job's last; `id` counts up, `event` is the kind, `data` is JSON.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
    }
}


@router.get("/{job_id}/events", response_class=StreamingResponse, responses=STREAM)
async def job_events(
    parts: PartsDep,
    owner: OwnerDep,
    job_id: str,
    after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="Start behind this event.")] = 0,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=MAX_SEQ, description="The same, as a browser that reconnects sends it.")
    ] = None,
) -> StreamingResponse:
    """Follow what happens to a job as server-sent events."""
    start = after if last_event_id is None else last_event_id
    await run_in_threadpool(service.news, parts, owner, job_id, start)  # a missing job is a 404, not a stream
    events = service.stream(parts, owner, job_id, start)
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
