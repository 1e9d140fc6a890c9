"""What work under way keeps, so that whoever goes on with it repeats nothing."""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import delete, func, select

from db.repositories.base import Repository
from db.repositories.leases import LeaseToken, held
from db.tables import FinishStep, Round, SearchState
from mallorn.core.errors import LeaseLost
from mallorn.core.values.decided_task import DecidedTask

#: Of each task: what its last round left, and what that round was given, so that it can be recomputed.
KEPT: Final = 2


class SearchStates(Repository):
    """One state a round at most; it goes with its job, or as newer ones come."""

    def newest(self, task_id: int, searcher: str) -> int | None:
        """The last round of a task from which this searcher left something."""
        same = SearchState.task_id == task_id, SearchState.searcher == searcher
        found: int | None = self.session.scalar(select(func.max(SearchState.round_id)).where(*same))
        return found

    def left_by(self, round_id: int | None) -> bytes | None:
        """What a round left; None where it left nothing, or nothing is kept any more."""
        query = select(SearchState.blob).where(SearchState.round_id == round_id)
        return self.session.scalar(query)

    def keep(self, row: Round, state: bytes) -> None:
        """Store what a round leaves, in the transaction that closes it."""
        kept = {"round_id": row.id, "task_id": row.task_id, "searcher": row.searcher, "blob": state}
        self.session.execute(self.insert(SearchState).values(**kept))
        of_task = select(SearchState.round_id).where(SearchState.task_id == row.task_id)
        newest = of_task.order_by(SearchState.round_id.desc()).limit(KEPT).subquery()
        old = SearchState.round_id.not_in(select(newest.c.round_id))
        self.changed(delete(SearchState).where(SearchState.task_id == row.task_id, old))


class FinishSteps(Repository):
    """A step for each task that was decided; they go when the job is done."""

    def of(self, job_id: str, trials: int, code: str) -> Mapping[int, DecidedTask]:
        """Return by task what was decided after this many trials by this code.

        More trials, or other machine code, may bring other winners.
        """
        query = select(FinishStep.task_id, FinishStep.decided)
        same = FinishStep.job_id == job_id, FinishStep.trials == trials
        rows = self.session.execute(query.where(*same))
        return {row.task_id: row.decided for row in rows if row.decided.code == code}

    def keep(self, hold: LeaseToken, task_id: int, trials: int, decided: DecidedTask) -> None:
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
