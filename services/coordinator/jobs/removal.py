"""Archives and deletes jobs."""

from db.repositories.removals import Removals
from mallorn.core.artifacts import exports_beside
from mallorn.core.values.job import JobStatus
from services.artifacts import remove
from services.coordinator.jobs.views import job_out
from services.coordinator.web.parts import Parts


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
        remove(exports_beside(uri))
        with parts.database.transaction() as session:
            Removals(session).forget_export(job_id)
