"""States of finish stages, from which another worker can continue."""

from collections.abc import Mapping

from sqlalchemy import delete, select

from mallorn.core.errors import LeaseLost
from mallorn.core.values.trial import DecidedTask
from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.leases import Leases, LeaseToken
from mallorn.db.tables import FinishStep


class FinishSteps(Repository):
    """Interim decisions of finish stages, one per task; deleted when a job is done."""

    def read_decisions(self, job_id: str, trials: int, code: str) -> Mapping[int, DecidedTask]:
        """Return a job's decisions by task, made after this many trials and with this code.

        Others are left out: with more trials or other code, other candidates may win.
        """
        query = select(FinishStep.task_id, FinishStep.decided)
        conditions = FinishStep.job_id == job_id, FinishStep.trials == trials
        rows = self.session.execute(query.where(*conditions))
        return {row.task_id: row.decided for row in rows if row.decided.code == code}

    def store(self, hold: LeaseToken, task_id: int, trials: int, decision: DecidedTask) -> None:
        """Store a decision. Raises LeaseLost if this lease no longer holds the stage."""
        job_id = hold.item.subject
        self.lock_jobs([job_id])
        if not Leases(self.session).holds(hold):
            message = f"the finish of job {job_id} is no longer leased to attempt {hold.attempt}"
            raise LeaseLost(message)
        values = {"trials": trials, "decided": decision}
        insert = self.insert(FinishStep).values(task_id=task_id, job_id=job_id, **values)
        upsert = insert.on_conflict_do_update(index_elements=["task_id"], set_=values)
        self.session.execute(upsert)

    def forget(self, job_id: str) -> int:
        """Delete the decisions of a job's finish stage; return how many there were."""
        return self.execute_and_count(delete(FinishStep).where(FinishStep.job_id == job_id))
