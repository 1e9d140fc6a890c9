"""Tasks of jobs, and their state."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, bindparam, case, exists, func, select, update

from db.repositories.base import Repository
from db.repositories.measurement_filters import best_of_task, failed
from db.tables import Job, Measurement, Round, Task, Workload
from mallorn.core.states import MeasurementKind, RoundState

GONE: Final = "its model has no such task any more: the code that imports models was replaced"


@dataclass(frozen=True, slots=True)
class NewTask:
    """A workload inside a job."""

    index: int
    name: str
    weight: int
    workload_id: int
    family: str = ""
    known_at_start: int = 0


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task and its state. `best_us` is over the whole dataset, all else of this job alone."""

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
        """Write a job's tasks; a second import of the job changes nothing."""
        if tasks:
            fresh = {"job_id": job_id, "retired": "", "family_why": "", "family_since": 0}
            rows = [fresh | asdict(task) for task in tasks]
            self.for_each(self.insert(Task).on_conflict_do_nothing(), rows)

    def replace(self, job_id: str, tasks: Sequence[NewTask]) -> None:
        """Make these a job's tasks, however often its model is imported.

        A task whose workload the job had already keeps its row. Tasks that the model no longer has stay as
        rows that the model calls 0 times: their rounds refer to them.
        """
        query = select(Task.id, Task.workload_id).where(Task.job_id == job_id).order_by(Task.index)
        stored = defaultdict[int, list[int]](list)
        for task_id, workload_id in self.session.execute(query):
            stored[workload_id].append(task_id)
        if stored:  # out of the way: a job's indices are unique at any time
            self.changed(update(Task).where(Task.job_id == job_id).values(index=-1 - Task.index))
        kept = [(stored[task.workload_id].pop(0), task) for task in tasks if stored.get(task.workload_id)]
        gone = [task_id for ids in stored.values() for task_id in ids]
        rows = [
            {"of": task_id, "at": task.index, "called": task.name, "calls": task.weight, "why": ""}
            for task_id, task in kept
        ]
        rows += [
            {"of": task_id, "at": len(tasks) + at, "called": None, "calls": 0, "why": GONE}
            for at, task_id in enumerate(gone)
        ]
        if rows:
            new: dict[str, ColumnElement[Any]] = {
                "index": bindparam("at"),
                "name": func.coalesce(bindparam("called"), Task.name),
                "weight": bindparam("calls"),
                "retired": bindparam("why"),
            }
            self.for_each(update(Task).where(Task.id == bindparam("of")).values(new), rows)
        again = {task.index for _, task in kept}
        self.add_many(job_id, [task for task in tasks if task.index not in again])

    def get(self, task_id: int) -> Task:
        """The task of a round; its id comes from the database, so it exists."""
        return self.session.get_one(Task, task_id)

    def list(self, job_id: str) -> Sequence[Task]:
        """In the order of the model."""
        return self.session.scalars(select(Task).where(_of(job_id)).order_by(Task.index)).all()

    def programs(self, job_id: str) -> Sequence[tuple[Task, Workload]]:
        """A job's tasks with their workloads, in the order of the model."""
        query = select(Task, Workload).join(Workload, Workload.id == Task.workload_id)
        rows = self.session.execute(query.where(_of(job_id)).order_by(Task.index))
        return [(task, workload) for task, workload in rows]

    def retire(self, reasons: Mapping[int, str]) -> None:
        """Retire tasks, with reasons by task id."""
        rows = [{"of": task_id, "why": reason} for task_id, reason in sorted(reasons.items())]
        if rows:
            self.for_each(
                update(Task).where(Task.id == bindparam("of")).values(retired=bindparam("why")), rows
            )

    def summaries(self, job_id: str) -> Sequence[TaskSummary]:
        """Every task and its state, in the order of the model."""
        # Committed trials, those that failed, and what open rounds still have to measure, by task.
        counted = {name: Counter[int]() for name in ("trials", "failures", "in_flight")}
        trial = and_(Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL)
        columns = Round.task_id, Round.state, Round.size
        rounds = (
            select(*columns, func.count(Measurement.id), func.sum(case((failed(), 1), else_=0)))
            .join(Measurement, trial, isouter=True)
            .where(Round.job_id == job_id)
            .group_by(Round.id, *columns)
        )
        for task_id, state, size, trials, failures in self.session.execute(rounds):
            counted["trials"][task_id] += trials
            counted["failures"][task_id] += failures
            counted["in_flight"][task_id] += size - trials if RoundState(state).open else 0
        # Columns, not rows: a job may have ten thousand tasks, and each workload carries its whole program.
        task = Task.id, Task.index, Task.name, Task.weight, Task.family, Task.family_why, Task.retired
        workload = Workload.key.label("workload_key"), Workload.flops
        query = (
            select(*task, *workload, best_of_task().label("best_us"))
            .join(Workload, Workload.id == Task.workload_id)
            .join(Job, Job.id == Task.job_id)
            .where(_of(job_id))
            .order_by(Task.index)
        )
        return [
            TaskSummary(**row._asdict() | {name: of_task[row.id] for name, of_task in counted.items()})
            for row in self.session.execute(query)
        ]


def _of(job_id: str) -> ColumnElement[bool]:
    """Whether a task is of this job, and the job's model has it as today's code imports it."""
    return and_(Task.job_id == job_id, Task.weight > 0)


def workload_is_busy() -> ColumnElement[bool]:
    """Whether the enclosing query's task has an open round on its job's target, of this job or another."""
    is_open = Round.state.in_((RoundState.QUEUED, RoundState.LEASED))
    same = Round.workload_id == Task.workload_id, Round.target_id == Job.target_id
    return exists(select(Round.id).where(*same, is_open).correlate(Task, Job))
