"""The stages of a job that one worker does alone: import and finish."""

from typing import Final

from sqlalchemy import select

from db.repositories.base import Repository
from db.repositories.leases import Leases, LeaseToken, WorkItem
from db.tables import Job
from mallorn.core.states import JobState, WorkKind

STAGES: Final = {
    JobState.QUEUED: WorkKind.IMPORT,
    JobState.IMPORTING: WorkKind.IMPORT,
    JobState.FINISHING: WorkKind.FINISH,
}
#: In which state a job is worked at.
STATES: Final = {WorkKind.IMPORT: JobState.IMPORTING, WorkKind.FINISH: JobState.FINISHING}


class Stages(Repository):
    """What the state of a job means for who may work at it."""

    def claim_stage(self, job_id: str, state: JobState, worker: str, lease_sec: float) -> LeaseToken | None:
        """Take the stage of a job in this state; None if it is not to be had."""
        self.lock_job(job_id)
        if self.session.scalar(select(Job.id).where(Job.id == job_id, Job.state == state)) is None:
            return None
        return Leases(self.session).claim(WorkItem(STAGES[state], job_id), worker, lease_sec)

    def _enter(self, job_id: str, state: JobState) -> None:
        """Whoever held a stage of the job holds it no more; that of the new state waits for a worker."""
        holds = Leases(self.session)
        holds.rest(STATES, [job_id])
        if state in STAGES:
            holds.open(WorkItem(STAGES[state], job_id), job_id)
