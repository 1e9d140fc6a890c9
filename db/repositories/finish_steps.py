"""What the finish of a job has decided so far: whoever goes on with it repeats nothing."""

from collections.abc import Mapping

from sqlalchemy import delete, select

from db.repositories.base import Repository
from db.repositories.holds import Hold, held
from db.tables import FinishStep
from mallorn.core.errors import LeaseLost
from mallorn.core.values.decided import DecidedTask


class FinishSteps(Repository):
    """A step for each task that was decided; they go when the job is done."""

    def of(self, job_id: str, trials: int) -> Mapping[int, DecidedTask]:
        """By task, what was decided after this many trials: more of them may bring other winners."""
        query = select(FinishStep.task_id, FinishStep.decided)
        same = FinishStep.job_id == job_id, FinishStep.trials == trials
        return {row.task_id: row.decided for row in self.session.execute(query.where(*same))}

    def keep(self, hold: Hold, task_id: int, trials: int, decided: DecidedTask) -> None:
        """Store a step. Raises LeaseLost unless the finish is still this claim's."""
        job_id = hold.item.subject
        self.lock_job(job_id)
        if not self.session.scalar(select(held(hold))):
            raise LeaseLost(f"the finish of job {job_id} is no longer leased to attempt {hold.attempt}")
        fresh = {"trials": trials, "decided": decided}
        insert = self.insert(FinishStep).values(task_id=task_id, job_id=job_id, **fresh)
        self.session.execute(insert.on_conflict_do_update(index_elements=["task_id"], set_=fresh))

    def forget(self, job_id: str) -> int:
        """Nobody goes on with it; how many steps there were."""
        return self.changed(delete(FinishStep).where(FinishStep.job_id == job_id))
