"""Archives and deletes jobs, and deletes what they exported."""

from db.repositories.removals import Removals
from mallorn.core.values.job import JobStatus
from services.coordinator.jobs.views import job_out
from services.coordinator.web.parts import Parts
from services.exports import remove_export


def archive(parts: Parts, owner: str, job_id: str) -> JobStatus:
    """Take an ended job out of the list. Raises NotFound; Conflict while it goes on."""
    with parts.database.transaction() as session:
        return job_out(session, Removals(session).archive(job_id, owner))


def unarchive(parts: Parts, owner: str, job_id: str) -> JobStatus:
    """Put a job back into the list. Raises NotFound."""
    with parts.database.transaction() as session:
        return job_out(session, Removals(session).unarchive(job_id, owner))


def delete(parts: Parts, owner: str, job_id: str) -> None:
    """Delete an ended job and its exported files. Raises NotFound; Conflict while it goes on."""
    with parts.database.transaction() as session:
        uri = Removals(session).get(job_id, owner).export_uri
        Removals(session).delete(job_id, owner)
    if uri is not None:
        # If this process dies here, control removes the files that nobody refers to any more.
        remove_export(parts.database, job_id, uri)


def delete_export(parts: Parts, owner: str, job_id: str) -> JobStatus:
    """Delete an ended job's exported files. Raises NotFound; Conflict where there are none."""
    with parts.database.transaction() as session:
        Removals(session).delete_export(job_id, owner)
        job = Removals(session).get(job_id, owner)
        answer = job_out(session, job)
    if job.export_uri is not None:
        remove_export(parts.database, job_id, job.export_uri)
    return answer
