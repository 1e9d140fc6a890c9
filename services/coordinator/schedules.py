"""Routes for the best known schedules and for the exported logs of a job."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query
from fastapi.responses import StreamingResponse

from mallorn.core.errors import Conflict
from mallorn.core.states import JobState
from mallorn.core.targets import parse_target
from mallorn.core.values.dataset import ScheduleLookup, TaskLookup, VerifiedSchedule, WholeSchedule
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.schedule_lookup import ScheduleLookups, ScheduleQuery
from mallorn.db.repositories.schedules import Schedules
from mallorn.services.coordinator.web.app_context import PartsDep
from mallorn.services.coordinator.web.caller_dependencies import FewAtOnce, OwnerDep
from mallorn.services.coordinator.web.response_types import (
    BYTES,
    MAX_BIG_INT,
    CursorQuery,
    LimitQuery,
    ListOut,
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
    workload: Annotated[str | None, Query(description="Only schedules of this workload key.")] = None,
    limit: LimitQuery = 100,
) -> ScheduleLookup:
    """Find schedules that fit or, if there is none, the nearest measured workloads and why they differ."""
    query = ScheduleQuery(
        workload=workload,
        operator=operator,
        shapes=[tuple(map(int, text.split("x"))) for text in shape or ()],
        dtype=dtype,
        target=parse_target(target).text if target else None,
    )
    with parts.patient.session() as session:
        return ScheduleLookups(session).find(owner, query, limit)


@router.get("/jobs/{job_id}/lookup", dependencies=[FewAtOnce])
def find_schedules_of_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> ListOut[TaskLookup]:
    """Say for each task whether the dataset has measured it, and otherwise why the nearest differ."""
    with parts.patient.session() as session:
        return ListOut(items=ScheduleLookups(session).of_job(Jobs(session).get(job_id, owner)))


@router.get("/schedules/{schedule_id}")
def get_schedule(parts: PartsDep, owner: OwnerDep, schedule_id: IdPath) -> WholeSchedule:
    """Show a schedule: its trace, and the program before and after it."""
    with parts.database.session() as session:
        schedule = Schedules(session).get(schedule_id, owner)
    scripts = parts.store.scripts(schedule.workload, schedule.trace)
    return schedule.model_copy(update={"scripts": scripts})


@router.get("/jobs/{job_id}/schedules", response_class=StreamingResponse, responses=ZIP)
def job_schedules(parts: PartsDep, owner: OwnerDep, job_id: str) -> StreamingResponse:
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
