"""The tasks of jobs, their states, and their histories for planning."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.orm import aliased

from mallorn.core.states import OFF, WRITE, MeasurementKind, RoundState
from mallorn.core.values.learning_curve import ClosedRounds, WorkloadCurve, WorkloadRound
from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.learning_curves import IS_WRONG, LearningCurves
from mallorn.db.repositories.measurement_filters import (
    best_of_task,
    has_failed,
    is_eligible,
    is_not_refuted,
    is_same_candidate,
    is_usable_by_job,
)
from mallorn.db.repositories.rounds import OPEN
from mallorn.db.tables import Job, Measurement, Round, SourceDataset, Task, Workload

GONE: Final = "the model has no such task any more, because the code that imports models was replaced"
# MetaSchedule's logs name no dataset, so they all get this key, which later exports preserve.
STOCK: Final = uuid5(NAMESPACE_URL, "metaschedule").hex
_Finish = aliased(Measurement, name="finish")
_Trial = aliased(Measurement, name="tried")
_Other = aliased(Job, name="other_job")


@dataclass(frozen=True, slots=True)
class NewTask:
    index: int
    name: str
    weight: int
    workload_id: int
    family: str = ""
    known_at_start: int = 0


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task and its state. Only `best_us` is also from other jobs of the dataset."""

    id: int
    index: int
    name: str
    weight: int
    family: str
    family_why: str
    retired: str
    workload_key: str
    flops: float
    best_us: float | None
    trials: int
    failures: int
    in_flight: int  # candidates of open rounds that are not committed yet


class Tasks(Repository):
    def add_many(self, job_id: str, tasks: Sequence[NewTask]) -> None:
        """Store a job's tasks; a second call for the same tasks changes nothing."""
        if tasks:
            defaults = {"job_id": job_id, "retired": "", "family_why": "", "family_since": 0}
            defaults |= {"closed": ClosedRounds()}
            rows = [defaults | asdict(task) for task in tasks]
            self.execute_for_rows(self.insert(Task).on_conflict_do_nothing(), rows)

    def replace(self, job_id: str, tasks: Sequence[NewTask]) -> None:
        """Replace a job's tasks with these, after a repeated import of its model.

        A task whose workload the job had already keeps its row. The rows of tasks that the
        model no longer has get weight 0 and remain, because rounds refer to them.
        """
        query = select(Task.id, Task.workload_id).where(Task.job_id == job_id).order_by(Task.index)
        old_ids = defaultdict[int, list[int]](list)  # by workload
        for task_id, workload_id in self.session.execute(query):
            old_ids[workload_id].append(task_id)
        if old_ids:  # frees the indices, which must be unique within a job at any time
            self.execute_and_count(update(Task).where(Task.job_id == job_id).values(index=-1 - Task.index))
        matches = [
            (old_ids[task.workload_id].pop(0), task) for task in tasks if old_ids.get(task.workload_id)
        ]
        removed_ids = [task_id for ids in old_ids.values() for task_id in ids]
        rows = [
            {"of": task_id, "at": task.index, "called": task.name, "calls": task.weight, "why": ""}
            for task_id, task in matches
        ]
        rows += [
            {"of": task_id, "at": len(tasks) + place, "called": None, "calls": 0, "why": GONE}
            for place, task_id in enumerate(removed_ids)
        ]
        if rows:
            new: dict[str, ColumnElement[Any]] = {
                "index": bindparam("at"),
                "name": func.coalesce(bindparam("called"), Task.name),
                "weight": bindparam("calls"),
                "retired": bindparam("why"),
            }
            self.execute_for_rows(update(Task).where(Task.id == bindparam("of")).values(new), rows)
        old_indices = {task.index for _, task in matches}
        self.add_many(job_id, [task for task in tasks if task.index not in old_indices])

    def get(self, task_id: int) -> Task:
        return self.session.get_one(Task, task_id)

    def list(self, job_id: str) -> Sequence[Task]:
        query = select(Task).where(_is_current_task_of(job_id)).order_by(Task.index)
        return self.session.scalars(query).all()

    def list_with_workloads(self, job_id: str) -> Sequence[tuple[Task, Workload]]:
        query = select(Task, Workload).join(Workload, Workload.id == Task.workload_id)
        rows = self.session.execute(query.where(_is_current_task_of(job_id)).order_by(Task.index))
        return [(task, workload) for task, workload in rows]

    def retire(self, reasons: Mapping[int, str]) -> None:
        """Plan no more rounds for these tasks; `reasons` has a reason for each task id."""
        rows = [{"of": task_id, "why": reason} for task_id, reason in sorted(reasons.items())]
        if rows:
            self.execute_for_rows(
                update(Task).where(Task.id == bindparam("of")).values(retired=bindparam("why")), rows
            )

    def summaries(self, job_id: str) -> Sequence[TaskSummary]:
        """Return every task of a job and its state, in the order of the model."""
        # By task: trials, failed trials, and candidates that open rounds must still measure.
        counts = {name: Counter[int]() for name in ("trials", "failures", "in_flight")}
        trial = and_(Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL)
        columns = Round.task_id, Round.state, Round.size
        rounds = (
            select(*columns, func.count(Measurement.id), func.sum(case((has_failed(), 1), else_=0)))
            .join(Measurement, trial, isouter=True)
            .where(Round.job_id == job_id)
            .group_by(Round.id, *columns)
        )
        for task_id, state, size, trials, failures in self.session.execute(rounds):
            counts["trials"][task_id] += trials
            counts["failures"][task_id] += failures
            counts["in_flight"][task_id] += size - trials if RoundState(state).is_open else 0
        # Only some columns: a job may have ten thousand tasks, and a workload holds a program.
        task = Task.id, Task.index, Task.name, Task.weight, Task.family, Task.family_why, Task.retired
        workload = Workload.key.label("workload_key"), Workload.flops
        query = (
            select(*task, *workload, best_of_task().label("best_us"))
            .join(Workload, Workload.id == Task.workload_id)
            .join(Job, Job.id == Task.job_id)
            .where(_is_current_task_of(job_id))
            .order_by(Task.index)
        )
        return [
            TaskSummary(**row._asdict() | {name: by_task[row.id] for name, by_task in counts.items()})
            for row in self.session.execute(query)
        ]


def _is_current_task_of(job_id: str) -> ColumnElement[bool]:
    """Return the condition that a task is this job's, and still in its newest import."""
    return and_(Task.job_id == job_id, Task.weight > 0)


def count_workload_rounds() -> ScalarSelect[int]:
    """Return the subquery for the number of open rounds of a task's workload: the job's, and
    those that it will learn from, but detached ones of other jobs."""
    is_open = Round.state.in_(OPEN), Round.target_id == Job.target_id
    is_comparable = or_(Job.context_id.is_(None), _Other.context_id == Job.context_id)
    is_shared = is_comparable, _Other.dataset == WRITE, Job.dataset != OFF
    is_counted = or_(_Other.id == Job.id, and_(~Round.detached, *is_shared))
    query = select(func.count(Round.id)).join(_Other, _Other.id == Round.job_id)
    query = query.where(Round.workload_id == Task.workload_id, *is_open, is_counted)
    return query.correlate(Task, Job).scalar_subquery()


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """A task and its rounds, as the planner reads them.

    `known_us` is the workload's best time from a finish stage; it is None if there is none,
    or if a round timed the same candidate.
    """

    id: int
    index: int
    name: str
    weight: int
    family: str
    known_at_start: int
    retired: str
    flops: float
    args: Mapping[str, Any]  # Workload.args
    workload_rounds: int  # open ones of its workload from which the job will learn
    known_us: float | None
    workload_id: int
    own: ClosedRounds  # the job's closed rounds
    curve: WorkloadCurve  # closed rounds of the job, and of others in its measuring context
    open_rounds: tuple[WorkloadRound, ...]  # of the job
    is_settled: bool  # whether LearningCurves.settle stored its closed rounds


class TaskHistories(Repository):
    """Reads a job's tasks, with the rounds of their workloads in its measuring context."""

    def of(self, job: Job, is_snapshot: bool = False) -> Sequence[TaskHistory]:
        """Return a job's tasks; `is_snapshot` if the session reads one snapshot.

        This reads stored curves and totals, and unsettled rounds. It reads all rounds of
        workloads of which nothing is stored, or that have a timed candidate with a wrong result.
        """
        curves = LearningCurves(self.session)
        while True:
            unsettled = curves.rounds(job)
            tasks = self.session.execute(_tasks(job)).all()
            workload_ids = {row.workload_id for row in tasks}
            refuted = {row.workload_id for row in tasks if row.is_refuted}
            stored = curves.stored(job, workload_ids - refuted)
            unstored = workload_ids - stored.keys() | {row.workload_id for row in tasks if row.closed is None}
            all_rounds = curves.rounds(job, unstored) if unstored else []
            rest = [one for one in unsettled if one.key.workload_id not in unstored]
            # Outside of a snapshot, some may be in the stored curves by now.
            if is_snapshot or not curves.has_settled([one.id for one in rest]):
                break
        rounds = defaultdict[int, list[WorkloadRound]](list)
        for one in (*rest, *all_rounds):
            rounds[one.key.workload_id].append(one.results)
        closed_ids = {one.key.workload_id for one in unsettled if not one.results.state.is_open}
        histories: list[TaskHistory] = []
        for task in tasks:
            columns, workload_id = dict(task._mapping), task.workload_id
            closed, is_refuted = columns.pop("closed"), columns.pop("is_refuted")
            rows = rounds.get(workload_id, ())
            closed_rounds = [row for row in rows if not row.state.is_open]
            is_stored = workload_id not in unstored
            own, curve = (closed, stored[workload_id]) if is_stored else (ClosedRounds(), WorkloadCurve())
            history = TaskHistory(
                **columns,
                own=own.with_rounds(row for row in closed_rounds if row.job_id == job.id),
                curve=curve.with_rounds(closed_rounds),
                open_rounds=tuple(row for row in rows if row.state.is_open),
                is_settled=(is_refuted and workload_id not in closed_ids) or not closed_rounds,
            )
            histories.append(history)
        return histories


def _times_of_candidate(of: type[Measurement]) -> Select[int]:
    """Return the query for measurements that timed the candidate of the measurement `of`."""
    is_timed = _Trial.latency_us.is_not(None)
    return select(_Trial.id).where(is_same_candidate(_Trial, of), is_timed).correlate(of)


def _tasks(job: Job) -> Select[*tuple[Any, ...]]:
    columns = Task.id, Task.index, Task.name, Task.weight, Task.family, Task.known_at_start, Task.retired
    # If a round timed the candidate, its time in a finish is only a repeat.
    is_trial = _Trial.kind == MeasurementKind.TRIAL, _Trial.context_id == _Finish.context_id
    was_tried = exists(_times_of_candidate(_Finish).where(*is_trial))
    known_us = case((~was_tried, _Finish.latency_us))
    same_workload = Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id
    # Wrong results count by owner (ADR 0101), so stored curves do not hold those of timed candidates.
    is_wrong = IS_WRONG, exists(_times_of_candidate(Measurement))
    is_refuted = exists(select(Measurement.id).where(*same_workload, *is_wrong))
    # A literal, so that SQLite uses the partial index of such rows.
    is_finish = Measurement.kind == literal_column(f"'{MeasurementKind.FINISH}'")
    is_timed = is_finish, is_eligible(Job.owner), is_usable_by_job()
    finishes = select(Measurement.id).where(*same_workload, *is_timed).order_by(Measurement.latency_us)
    best = finishes.limit(1).correlate(Task, Job).scalar_subquery()
    # Chosen before the join, or Postgres would join the whole table.
    finish_ids = select(Task.id.label("task_id"), best.label("finish_id"))
    of_job = finish_ids.join(Job, Job.id == Task.job_id).where(Task.job_id == job.id)
    chosen_cte = of_job.cte("chosen")
    chosen_cte = chosen_cte.prefix_with("MATERIALIZED", dialect="postgresql")
    return (
        select(*columns, Workload.flops, Workload.args, Task.workload_id, Task.closed)
        .add_columns(count_workload_rounds().label("workload_rounds"), known_us.label("known_us"))
        .add_columns(is_refuted.correlate(Task, Job).label("is_refuted"))
        .join(Workload, Workload.id == Task.workload_id)
        .join(Job, Job.id == Task.job_id)
        .join(chosen_cte, chosen_cte.c.task_id == Task.id)
        .join(_Finish, _Finish.id == chosen_cte.c.finish_id, isouter=True)
        .where(Task.job_id == job.id)
        .order_by(Task.index)
    )


class Stock(Repository):
    """Times from MetaSchedule's logs, of unknown hosts: never a task's best."""

    def best_us_by_task(self, job_id: str) -> dict[int, float]:
        """Return MetaSchedule's best time on the job's target for each task that has one."""
        same_task = and_(Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id)
        query = (
            select(Task.id, func.min(Measurement.latency_us))
            .join(Job, Job.id == Task.job_id)
            .join(Measurement, same_task)
            .join(SourceDataset, SourceDataset.id == Measurement.source_id)
            .where(Task.job_id == job_id, SourceDataset.key == STOCK, is_not_refuted(Job.owner))
            .group_by(Task.id)
        )
        return {task: us for task, us in self.session.execute(query) if us is not None}
