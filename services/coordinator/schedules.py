"""Routes for the best known schedules and for the exported logs of a job."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from mallorn.core.errors import Conflict
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import VerifiedSchedule, WholeSchedule
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.schedules import Schedules
from mallorn.services.coordinator.web.app_context import PartsDep
from mallorn.services.coordinator.web.caller_dependencies import OwnerDep
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
IdPath = Annotated[int, Path(ge=1, le=MAX_BIG_INT, description="The schedule's id.")]
ZIP: Final = describe_response(
    MEDIA_TYPE, "Files that stock TVM loads as `JSONDatabase(work_dir=...)`, with a manifest.", BYTES
)


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


@router.get("/schedules/{schedule_id}")
def get_schedule(parts: PartsDep, owner: OwnerDep, schedule_id: IdPath) -> WholeSchedule:
    """Show a schedule: its trace, and the program before and after it."""
    with parts.database.session() as session:
        schedule = Schedules(session).get(schedule_id, owner)
    scripts = parts.store.scripts(schedule.workload, schedule.trace)
    return schedule.model_copy(update={"scripts": scripts})


@router.get("/jobs/{job_id}/schedules", response_class=StreamingResponse, responses=ZIP)
def download_job_schedules(parts: PartsDep, owner: OwnerDep, job_id: str) -> StreamingResponse:
    """Download the tuning logs that a job exported, as a zip archive."""
    with parts.database.session() as session:
        job = Jobs(session).get(job_id, owner)
    if job.export_deleted_at is not None:
        message = f"the schedules that job {job_id} exported were deleted"
        raise Conflict(message, hint=f"mallorn resume {job_id} --trials 1   (exports them again)")
    if job.export_uri is None:
        if JobState(job.state).is_final:
            message = f"job {job_id} is {job.state} and left no schedules"
            raise Conflict(message, hint=f"mallorn show {job_id}")
        message = f"job {job_id} has no schedules yet, it is {job.state}"
        raise Conflict(message, hint=f"mallorn watch {job_id}")
    return StreamingResponse(
        parts.store.zip_directory(job.export_uri),
        media_type=MEDIA_TYPE,
        headers={"Content-Disposition": f'attachment; filename="mallorn-{job_id}.zip"'},
    )
