"""Routes of jobs."""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response

from mallorn.core.states import JobState
from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import JobStatus, TaskStatus
from services.coordinator.jobs import removal, rounds, service, steering, submit
from services.coordinator.jobs.requests import JobIn, ResumeIn
from services.coordinator.jobs.rounds import RoundOrder
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.numbers import MAX_INT
from services.coordinator.web.paging import CursorQuery, LimitQuery, ListOut, PageOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/jobs", tags=["jobs"])
KeyHeader = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Sent again with the same request it finds the first job instead of making another.",
    ),
]
TaskQuery = Annotated[
    int | None, Query(ge=0, le=MAX_INT, description="Only rounds of the task with this index.")
]
OrderQuery = Annotated[
    RoundOrder, Query(description="`newest` or `oldest` first; keep it from page to page.")
]
REPEATED: Final = "The job that this Idempotency-Key made before."


@router.post(
    "", status_code=HTTPStatus.CREATED, responses={200: {"model": JobStatus, "description": REPEATED}}
)
def submit_job(
    parts: PartsDep, owner: OwnerDep, request: JobIn, response: Response, idempotency_key: KeyHeader = None
) -> JobStatus:
    """Submit a job for an uploaded model."""
    job, is_new = submit.submit(parts, owner, request, idempotency_key)
    response.status_code = HTTPStatus.CREATED if is_new else HTTPStatus.OK
    response.headers["Location"] = f"/api/v1/jobs/{job.id}"
    return job


@router.get("")
def list_jobs(
    parts: PartsDep,
    owner: OwnerDep,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    archived: Annotated[bool, Query(description="Those that were archived, instead of all others.")] = False,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> PageOut[JobStatus]:
    """List the owner's jobs, newest first."""
    return service.list_jobs(parts, owner, state, archived, cursor, limit)


@router.get("/{job_id}")
def get_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Show one job, by its id or the beginning of it: state, progress and reports."""
    return service.get_job(parts, owner, job_id)


@router.get("/{job_id}/tasks")
def list_tasks(parts: PartsDep, owner: OwnerDep, job_id: str) -> ListOut[TaskStatus]:
    """List a job's tasks as MetaSchedule's table does; empty until the model is imported."""
    return service.list_tasks(parts, owner, job_id)


@router.get("/{job_id}/rounds")
def list_rounds(
    parts: PartsDep,
    owner: OwnerDep,
    job_id: str,
    task: TaskQuery = None,
    order: OrderQuery = RoundOrder.NEWEST,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> PageOut[RoundStatus]:
    """List a job's rounds: why each was planned, what was expected of it and what it brought."""
    return rounds.list_rounds(parts, owner, job_id, task, order, cursor, limit)


@router.post("/{job_id}/cancel")
def cancel_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """End a job now; its measurements stay."""
    return steering.cancel(parts, owner, job_id)


@router.post("/{job_id}/pause")
def pause_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Plan no more rounds until the job is resumed."""
    return steering.pause(parts, owner, job_id)


@router.post("/{job_id}/resume")
def resume_job(parts: PartsDep, owner: OwnerDep, job_id: str, request: ResumeIn | None = None) -> JobStatus:
    """Go on with a paused job, or with a done one given more trials; nothing is measured again."""
    return steering.resume(parts, owner, job_id, request or ResumeIn())


@router.post("/{job_id}/archive")
def archive_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Take a job that has ended out of the list; everything of it stays."""
    return removal.archive(parts, owner, job_id)


@router.post("/{job_id}/unarchive")
def unarchive_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Put an archived job back into the list."""
    return removal.unarchive(parts, owner, job_id)


@router.delete("/{job_id}/export")
def delete_export(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Delete the files that an ended job exported; the job stays, and more trials export them again."""
    return removal.delete_export(parts, owner, job_id)


@router.delete("/{job_id}", status_code=HTTPStatus.NO_CONTENT)
def delete_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> None:
    """Delete a job that has ended, with its log and exported files; its measurements and schedules stay."""
    removal.delete(parts, owner, job_id)
