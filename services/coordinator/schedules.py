"""Routes for the best known schedules, and for a job's exported logs and library."""

import re
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import Response, StreamingResponse

from mallorn.core.artifact_uris import library_uri
from mallorn.core.errors import Conflict, NotFound
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import ScheduleLookup, VerifiedSchedule, WholeSchedule
from mallorn.core.values.event import BenchStartedEvent
from mallorn.core.values.job import JobStatus, JobStep
from mallorn.core.values.manifest import LIBRARY
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.schedule_lookup import ScheduleLookups, ScheduleQuery
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.tables import Job
from mallorn.services.coordinator.jobs.job_views import job_out
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.caller_dependencies import FewAtOnce, OwnerDep
from mallorn.services.coordinator.web.response_types import (
    BYTES,
    MAX_BIG_INT,
    CursorQuery,
    LimitQuery,
    PageOut,
    describe_response,
)

router = APIRouter(tags=["schedules"])
MEDIA_TYPE: Final = "application/zip"
SHAPE: Final = r"^[0-9]{1,9}(x[0-9]{1,9}){0,15}$"
IdPath = Annotated[int, Path(ge=1, le=MAX_BIG_INT, description="The schedule's id.")]
ZIP: Final = describe_response(
    MEDIA_TYPE, "Files that stock TVM loads as `JSONDatabase(work_dir=...)`, with a manifest.", BYTES
)

BINARY: Final = "application/octet-stream"
LIBRARY_RESPONSES: Final = describe_response(BINARY, "A shared library that TVM's runtime loads.", BYTES) | {
    206: {"description": "The rest of the library, from the byte that `Range` names."},
    304: {"description": "The caller has this library."},
}
_REST: Final = re.compile(r"bytes=(\d{1,18})-")


@router.get("/schedules")
def list_schedules(
    parts: PartsDep,
    owner: OwnerDep,
    workload: Annotated[str | None, Query(description="Only schedules of this workload key.")] = None,
    target: Annotated[str | None, Query(description="Only schedules for exactly this target.")] = None,
    beaten: Annotated[bool, Query(description="Also slower, replaced schedules.")] = False,
    cursor: CursorQuery = None,
    limit: LimitQuery = 100,
) -> PageOut[VerifiedSchedule]:
    """List the fastest schedules of the caller's jobs per workload and target, by name."""
    target_key = parse_target(target).key if target else None
    with parts.database.session() as session:
        page = Schedules(session).page(
            owner, workload=workload, target=target_key, beaten=beaten, cursor=cursor, limit=limit
        )
    return PageOut(items=page.items, next_cursor=page.cursor)


@router.get("/schedules/lookup", dependencies=[FewAtOnce])
def find_schedules(
    parts: PartsDep,
    owner: OwnerDep,
    operator: Annotated[str | None, Query(description="Operator, as `/dataset/stats` names it.")] = None,
    shape: Annotated[
        list[Annotated[str, Query(pattern=SHAPE, max_length=200)]] | None,
        Query(description="Shape of an argument, such as 1x64x56x56; repeatable.", max_length=16),
    ] = None,
    dtype: Annotated[str | None, Query(description="Data type of an argument, such as float32.")] = None,
    target: Annotated[str | None, Query(description="Only schedules for exactly this target.")] = None,
    workload: Annotated[str | None, Query(description="A workload's key; its other fields follow.")] = None,
    limit: LimitQuery = 100,
) -> ScheduleLookup:
    """Find schedules by their fields. If none fits, list the nearest measured workloads and
    the fields in which they differ."""
    shapes = [list(map(int, text.split("x"))) for text in shape or ()]
    dtypes = [dtype] if dtype else []
    query = ScheduleQuery(workload, operator, shapes, dtypes, parse_target(target) if target else None)
    with parts.patient.session() as session:
        return ScheduleLookups(session).find(owner, query, limit)


@router.get("/schedules/{schedule_id}")
def get_schedule(parts: PartsDep, owner: OwnerDep, schedule_id: IdPath) -> WholeSchedule:
    """Show a schedule: its trace, and the program before and after it."""
    with parts.database.session() as session:
        schedule = Schedules(session).get(schedule_id, owner)
    scripts = parts.store.scripts(owner, schedule.workload, schedule.trace)
    return schedule.model_copy(update={"scripts": scripts})


@router.get(
    "/jobs/{job_id}/schedules",
    response_class=StreamingResponse,
    responses=ZIP,
    dependencies=[FewAtOnce],
)
def download_job_schedules(parts: PartsDep, owner: OwnerDep, job_id: str) -> StreamingResponse:
    """Download the tuning logs that a job exported, as a zip archive."""
    with parts.database.session() as session:
        uri = _export_uri(Jobs(session).get(job_id, owner))
    return StreamingResponse(
        parts.store.zip_directory(uri),
        media_type=MEDIA_TYPE,
        headers={"Content-Disposition": f'attachment; filename="mallorn-{job_id}.zip"'},
    )


@router.post("/jobs/{job_id}/bench")
def bench_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Time a done job's exported schedules again, on a device like the one that measured
    them. The result is the event `benched`."""
    step = JobStep(name="its exported schedules are timed again")
    with parts.database.transaction() as session:
        job = Jobs(session).get(job_id, owner)
        _export_uri(job)
        if not Jobs(session).move_to_state(job_id, [JobState.DONE], JobState.FINISHING, step=step):
            raise Conflict(f"job {job_id} is not done but {job.state}", hint=f"mallorn watch {job_id}")
        Jobs(session).store_report_columns(job_id, is_bench=True)
        Events(session).append(job_id, BenchStartedEvent())
        status = job_out(session, Jobs(session).get(job_id, owner))
    parts.waker.wake_for_job(status.state, job_id, status.target)
    return status


@router.get("/jobs/{job_id}/library", response_class=StreamingResponse, responses=LIBRARY_RESPONSES)
def download_job_library(
    parts: PartsDep,
    owner: OwnerDep,
    job_id: str,
    range_header: Annotated[
        str | None, Header(alias="Range", description="`bytes=N-`: the rest from byte N on.")
    ] = None,
    if_range: Annotated[
        str | None, Header(description="ETag of the first part; another library is sent from its start.")
    ] = None,
    if_none_match: Annotated[
        str | None, Header(description="ETag of the library that the caller has.")
    ] = None,
) -> Response:
    """Download the compiled model, a shared library; its ETag is its SHA-256."""
    with parts.database.session() as session:
        job = Jobs(session).get(job_id, owner)
        uri, report = _export_uri(job), job.report
    library = parts.store.manifest(uri).library
    if library is None:
        reason = report.no_library_reason if report is not None else ""
        message = f"job {job_id} stored no library. {reason or 'It ended before libraries were stored.'}"
        hint = (
            f"mallorn compile MODEL --schedules DIR -o {LIBRARY}   (after: mallorn fetch {job_id} --out DIR)"
        )
        raise NotFound(message, hint=hint)
    headers = {"ETag": f'"{library.digest}"', "Accept-Ranges": "bytes"}
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    range_match = _REST.fullmatch(range_header or "") if if_range in (None, headers["ETag"]) else None
    start = int(range_match[1]) if range_match and int(range_match[1]) < library.bytes else 0
    headers["Content-Length"] = str(library.bytes - start)
    headers["Content-Disposition"] = f'attachment; filename="{LIBRARY}"'
    if start:
        headers["Content-Range"] = f"bytes {start}-{library.bytes - 1}/{library.bytes}"
    return StreamingResponse(
        parts.store.chunks(library_uri(uri, library.digest), start),
        status_code=206 if start else 200,
        media_type=BINARY,
        headers=headers,
    )


def _export_uri(job: Job) -> str:
    """Return the URI of the job's exported files. Raises Conflict if there are none."""
    if job.export_deleted_at is not None:
        message = f"the files that job {job.id} exported were deleted"
        raise Conflict(message, hint=f"mallorn resume {job.id} --trials 1   (exports them again)")
    if job.export_uri is None:
        if JobState(job.state).is_final:
            message = f"job {job.id} is {job.state} and left no schedules"
            raise Conflict(message, hint=f"mallorn show {job.id}")
        message = f"job {job.id} has no schedules yet, it is {job.state}"
        raise Conflict(message, hint=f"mallorn watch {job.id}")
    return job.export_uri
