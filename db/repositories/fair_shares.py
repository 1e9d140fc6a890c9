"""The tuning jobs of a target, and their pass values in stride scheduling."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, exists, func, or_, select, update

from mallorn.core.estimate_finish_time import FINISH_SEC, FINISH_SEC_PER_TASK, MOST_OF_BUDGET
from mallorn.core.states import JobState
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.tasks import workload_is_busy
from mallorn.db.tables import Job, Round, Task


@dataclass(frozen=True, slots=True)
class Claim:
    """A tuning job that may get its target's next turn; `able` if a round can start now."""

    id: str
    owner: str
    priority: int
    share_pass: float | None
    owner_pass: float | None
    able: bool


class FairShares(Repository):
    """Reads and stores jobs' pass values; `mallorn.services.planner.fair_share` computes them."""

    def claims(self, target_id: int) -> Sequence[Claim]:
        columns = Job.id, Job.owner, Job.priority, Job.share_pass, Job.owner_pass
        tuning = Job.state == JobState.TUNING, Job.target_id == target_id
        is_free = Task.job_id == Job.id, Task.retired == "", ~workload_is_busy()
        able = exists(select(Task.id).where(*is_free).correlate(Job))
        rows = self.session.execute(select(*columns, able).where(*tuning).order_by(Job.id))
        return [Claim(*row) for row in rows]

    def take_turn(self, job_id: str, share_pass: float | None, owner_pass: float | None) -> None:
        """Store a job's pass values after its turn, and when it was planned: now."""
        passes = {"share_pass": share_pass, "owner_pass": owner_pass, "planned_at": now()}
        update_query = update(Job).where(Job.id == job_id, Job.state == JobState.TUNING).values(passes)
        self.execute_and_count(update_query)

    def seconds_left(self, job_id: str) -> float | None:
        """Return the seconds a job may tune; None without a deadline or if exported."""
        return self.session.scalar(select(_seconds_left()).where(Job.id == job_id))

    def list_jobs_to_plan(self, per_target: int) -> Sequence[str]:
        """Return the tuning jobs to plan now.

        These are jobs that were never planned, had a round end since, or are out of
        time; and of each target the `per_target` jobs that were planned longest ago.
        """
        place = func.row_number().over(partition_by=Job.target_id, order_by=(Job.planned_at, Job.id))
        closed_rounds = Round.job_id == Job.id, Round.finished_at > Job.planned_at
        has_closed = exists(select(Round.id).where(*closed_rounds).correlate(Job))
        news = or_(Job.planned_at.is_(None), has_closed, _seconds_left() < 0)
        tuning = select(Job.id, news.label("news"), place.label("place")).where(Job.state == JobState.TUNING)
        waiting = tuning.subquery()
        is_due = or_(waiting.c.news, waiting.c.place <= per_target)
        return self.session.scalars(select(waiting.c.id).where(is_due).order_by(waiting.c.place)).all()


def _seconds_left() -> ColumnElement[float | None]:
    tasks = select(func.count()).select_from(Task).where(Task.job_id == Job.id).correlate(Job)
    finish, budget = FINISH_SEC + FINISH_SEC_PER_TASK * tasks.scalar_subquery(), Job.minutes * 60
    tuning = case((finish < budget * MOST_OF_BUDGET, budget - finish), else_=budget * (1 - MOST_OF_BUDGET))
    return case((Job.export_uri.is_(None), Job.created_at + tuning - now()))
