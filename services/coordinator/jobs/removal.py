"""Archives and deletes jobs, and deletes what they exported."""

from http import HTTPStatus

from fastapi import APIRouter

from db.repositories.removals import Removals
from mallorn.core.values.job import JobStatus
from services.artifacts import remove_export
from services.coordinator.jobs.views import job_out
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.post("/{job_id}/archive")
def archive_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Take a job that has ended out of the list; everything of it stays."""
    with parts.database.transaction() as session:
        return job_out(session, Removals(session).archive(job_id, owner))


@router.post("/{job_id}/unarchive")
def unarchive_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Put an archived job back into the list."""
    with parts.database.transaction() as session:
        return job_out(session, Removals(session).unarchive(job_id, owner))


@router.delete("/{job_id}/export")
def delete_export(parts: PartsDep, owner: OwnerDep, job_id: str) -> JobStatus:
    """Delete the files that an ended job exported; the job stays, and more trials export them again."""
    with parts.database.transaction() as session:
        Removals(session).delete_export(job_id, owner)
        job = Removals(session).get(job_id, owner)
        answer = job_out(session, job)
    if job.export_uri is not None:
        remove_export(parts.database, job_id, job.export_uri)
    return answer


@router.delete("/{job_id}", status_code=HTTPStatus.NO_CONTENT)
def delete_job(parts: PartsDep, owner: OwnerDep, job_id: str) -> None:
    """Delete a job that has ended, with its log and exported files; its measurements and schedules stay."""
    with parts.database.transaction() as session:
        uri = Removals(session).get(job_id, owner).export_uri
        Removals(session).delete(job_id, owner)
    if uri is not None:
        # If this process dies here, control removes the files that nobody refers to any more.
        remove_export(parts.database, job_id, uri)
