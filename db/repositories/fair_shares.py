"""The tuning jobs of a target and their fair shares."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, case, exists, func, or_, select, update

from db.database_clock import now
from db.repositories.base import Repository
from db.repositories.tasks import workload_is_busy
from db.tables import Job, Round, Task
from mallorn.core.finish_reserve import FINISH_SEC, FINISH_SEC_PER_TASK, MOST_OF_BUDGET
from mallorn.core.states import JobState


@dataclass(frozen=True, slots=True)
class Claim:
    """What decides a job's turn; `able` if it has a task that a round could be opened for."""

    id: str
    owner: str
    priority: int
    share_pass: float | None
    owner_pass: float | None
    able: bool


class FairShares(Repository):
    """Passes of the fair share (services.planner.fair_share); a change of a job's state resets them."""

    def claims(self, target_id: int) -> Sequence[Claim]:
        """Claims of all jobs that tune for a target, without reading their rounds or measurements."""
        columns = Job.id, Job.owner, Job.priority, Job.share_pass, Job.owner_pass
        tuning = Job.state == JobState.TUNING, Job.target_id == target_id
        free = Task.job_id == Job.id, Task.retired == "", ~workload_is_busy()
        able = exists(select(Task.id).where(*free).correlate(Job))
        rows = self.session.execute(select(*columns, able).where(*tuning).order_by(Job.id))
        return [Claim(*row) for row in rows]

    def take_turn(self, job_id: str, share_pass: float | None, owner_pass: float | None) -> None:
        """Store the cost of a job's turn, and the time of this look."""
        paid = {"share_pass": share_pass, "owner_pass": owner_pass, "planned_at": now()}
        self.changed(update(Job).where(Job.id == job_id, Job.state == JobState.TUNING).values(paid))

    def seconds_left(self, job_id: str) -> float | None:
        """How long a job may tune on so that its finish meets the deadline; None where it has none."""
        return self.session.scalar(select(_seconds_left()).where(Job.id == job_id))

    def due(self, per_target: int) -> Sequence[str]:
        """Tuning jobs with unread news, and for each target those not looked at for longest."""
        place = func.row_number().over(partition_by=Job.target_id, order_by=(Job.planned_at, Job.id))
        closed = Round.job_id == Job.id, Round.finished_at > Job.planned_at
        has_closed = exists(select(Round.id).where(*closed).correlate(Job))
        news = or_(Job.planned_at.is_(None), has_closed, _seconds_left() < 0)
        tuning = select(Job.id, news.label("news"), place.label("place")).where(Job.state == JobState.TUNING)
        waiting = tuning.subquery()
        due = or_(waiting.c.news, waiting.c.place <= per_target)
        return self.session.scalars(select(waiting.c.id).where(due).order_by(waiting.c.place)).all()


def _seconds_left() -> ColumnElement[float | None]:
    """Null without a deadline: what is asked for on top of an export that met it is asked for in trials."""
    tasks = select(func.count()).select_from(Task).where(Task.job_id == Job.id).correlate(Job)
    finish, budget = FINISH_SEC + FINISH_SEC_PER_TASK * tasks.scalar_subquery(), Job.minutes * 60
    tuning = case((finish < budget * MOST_OF_BUDGET, budget - finish), else_=budget * (1 - MOST_OF_BUDGET))
    return case((Job.export_uri.is_(None), Job.created_at + tuning - now()))
