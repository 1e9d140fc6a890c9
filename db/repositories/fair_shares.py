"""The tuning jobs of a target, and their pass values in stride scheduling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, String, and_, case, cast, exists, func, or_, select, update

from mallorn.core.estimate_finish_time import FINISH_SEC, FINISH_SEC_PER_TASK, MOST_OF_BUDGET
from mallorn.core.states import Cause, JobState
from mallorn.core.targets import Target
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository, require_row, seconds_from_now
from mallorn.db.repositories.rounds import OPEN
from mallorn.db.repositories.tasks import count_workload_rounds
from mallorn.db.repositories.workers import FRESH_SEC
from mallorn.db.tables import Context, Device, Job, Round, TargetRow, Task, Worker

BACKSTOP_SEC: Final = 180.0
OVERLAP_SEC: Final = 20.0  # longer than a plan, which may miss what changes meanwhile


@dataclass(frozen=True, slots=True)
class Claim:
    """A tuning job that may get its target's next turn; `able` if a round can start now.
    If it only `wants_rounds`, it may get those that no able job opens."""

    id: str
    owner: str
    priority: int
    share_pass: float | None
    owner_pass: float | None
    able: bool
    wants_rounds: bool


@dataclass(frozen=True, slots=True)
class JobToPlan:
    """A job with what its plan depends on, apart from its tasks."""

    open_rounds: frozenset[str]  # ids, with those of detached rounds
    job: Job
    target: Target
    context: Context | None
    seconds_left: float | None  # None without a deadline or if exported
    next_index: int  # of its next round
    has_new_tasks: bool  # which are in no family yet


class FairShares(Repository):
    """Reads and stores jobs' pass values; `mallorn.services.planner.fair_share` computes them."""

    def claims(self, target_id: int) -> tuple[Sequence[Claim], int]:
        """Return a target's tuning jobs by id, and how many rounds of its devices are open. A
        job is able if a task of it is not retired and its workload has no round in flight
        (detached ones of other jobs do not count), or if it has no round in flight and its last
        turn opened all that it might."""
        columns = Job.id, Job.owner, Job.priority, Job.share_pass, Job.owner_pass
        tuning = Job.state == JobState.TUNING, Job.target_id == target_id
        is_open = Round.target_id == target_id, Round.state.in_(OPEN)
        in_flight = select(Round.job_id, Round.workload_id, Round.detached).where(*is_open)
        open_rounds = self.session.execute(in_flight).all()
        # Few rows, so they are read once, and not searched for each task of each job.
        busy = {workload_id for _, workload_id, is_detached in open_rounds if not is_detached}
        detached_jobs = {job_id for job_id, _, is_detached in open_rounds if is_detached}
        is_free = [Task.job_id == Job.id, Task.retired == "", ~self.is_among(Task.workload_id, busy)]
        if detached_jobs:
            is_idle = count_workload_rounds() == 0
            is_free.append(or_(~self.is_among(Job.id, detached_jobs), is_idle))
        has_none = ~self.is_among(Job.id, {job_id for job_id, _, _ in open_rounds})
        has_free = exists(select(Task.id).where(*is_free).correlate(Job))
        able = or_(has_free, and_(Job.wants_rounds, has_none))
        query = select(*columns, able, Job.wants_rounds).where(*tuning)
        claims = [Claim(*row) for row in self.session.execute(query.order_by(Job.id))]
        return claims, sum(not is_detached for *_, is_detached in open_rounds)

    def take_turn(
        self, job_id: str, share_pass: float | None, owner_pass: float | None, wants_rounds: bool
    ) -> None:
        """Store a job's pass values after its turn, whether it opened all rounds that it
        might (`wants_rounds`), and when it was planned: now."""
        is_tuning = Job.id == job_id, Job.state == JobState.TUNING
        values = {"share_pass": share_pass, "owner_pass": owner_pass, "wants_rounds": wants_rounds}
        self.execute_and_count(update(Job).where(*is_tuning).values(**values, planned_at=now()))

    def job_to_plan(self, job_id: str) -> JobToPlan:
        """Return a job to be planned. Raises NotFound if there is none."""
        last = select(func.max(Round.index)).where(Round.job_id == Job.id).correlate(Job)
        next_index = func.coalesce(last.scalar_subquery(), -1) + 1
        has_new = exists().where(Task.job_id == Job.id, Task.family == "").correlate(Job)
        ids = select(func.aggregate_strings(cast(Round.id, String), " "))
        open_ids = ids.where(Round.job_id == Job.id, Round.state.in_(OPEN)).correlate(Job)
        parts = Context, _seconds_left(), next_index, has_new, open_ids.scalar_subquery()
        query = select(Job, TargetRow, *parts).join(TargetRow, TargetRow.id == Job.target_id)
        query = query.join(Context, Context.id == Job.context_id, isouter=True).where(Job.id == job_id)
        found = self.session.execute(query).one_or_none()
        job, target, *others, open_rounds = require_row(found, f"job {job_id}", "mallorn jobs")
        return JobToPlan(frozenset((open_rounds or "").split()), job, Target(target.text), *others)

    def list_jobs_to_plan(self, per_target: int) -> Sequence[str]:
        """Return the tuning jobs whose next plan may differ from their last.

        These are jobs that were never planned, had a round end since, or are out of time.
        They are also, of each target, the `per_target` jobs planned longest ago of those
        that wait for a device, whose devices or workers have changed since, or whose plan
        is BACKSTOP_SEC old; and one job if any round of the target has ended since its last
        plan, because the job of that round may have ended, too.
        """
        # The newest end is one look at an index; for EXISTS, Postgres may read all rounds.
        newest_end = select(func.max(Round.finished_at)).where(Round.job_id == Job.id).correlate(Job)
        has_closed = newest_end.scalar_subquery() > Job.planned_at
        is_late = and_(Job.minutes.is_not(None), _seconds_left() < 0)
        news = or_(Job.planned_at.is_(None), has_closed, is_late)
        devices = _select_last_change(Device, Device.target_id).group_by(Device.target_id).subquery()
        workers = _select_last_change(Worker).scalar_subquery()
        due = or_(
            Job.cause != Cause.OTHER,
            Job.planned_at < seconds_from_now(-BACKSTOP_SEC),
            Job.planned_at < devices.c.changed_at + OVERLAP_SEC,
            Job.planned_at < workers + OVERLAP_SEC,
        )
        last_plan = func.max(Job.planned_at).over(partition_by=Job.target_id).label("last_plan")
        columns = Job.id, Job.target_id, Job.planned_at, news.label("news"), due.label("due"), last_plan
        query = select(*columns).join(devices, devices.c.target_id == Job.target_id, isouter=True)
        jobs = query.where(Job.state == JobState.TUNING).subquery()
        order = case((jobs.c.due, 0), else_=1), jobs.c.planned_at, jobs.c.id
        place = func.row_number().over(partition_by=jobs.c.target_id, order_by=order).label("place")
        placed = select(jobs, place).subquery()
        of_target = select(func.max(Round.finished_at)).where(Round.target_id == placed.c.target_id)
        has_news = of_target.correlate(placed).scalar_subquery() > placed.c.last_plan
        is_first = and_(placed.c.place == 1, has_news)
        is_chosen = or_(placed.c.news, and_(placed.c.due, placed.c.place <= per_target), is_first)
        return self.session.scalars(select(placed.c.id).where(is_chosen).order_by(placed.c.place)).all()


def _select_last_change(table: type[Device | Worker], *columns: Any) -> Select[*tuple[Any, ...]]:
    """Return the query for when a row last was added, changed, stopped or fell silent."""
    silent_at = case(
        (table.last_seen <= seconds_from_now(-FRESH_SEC), table.last_seen + FRESH_SEC), else_=0.0
    )
    changed_at = func.coalesce(table.changed_at, 0.0)
    last = func.max(case((silent_at > changed_at, silent_at), else_=changed_at))
    return select(*columns, last.label("changed_at"))


def _seconds_left() -> ColumnElement[float | None]:
    tasks = select(func.count()).select_from(Task).where(Task.job_id == Job.id).correlate(Job)
    finish, budget = FINISH_SEC + FINISH_SEC_PER_TASK * tasks.scalar_subquery(), Job.minutes * 60
    tuning = case((finish < budget * MOST_OF_BUDGET, budget - finish), else_=budget * (1 - MOST_OF_BUDGET))
    return case((Job.export_uri.is_(None), Job.created_at + tuning - now()))
