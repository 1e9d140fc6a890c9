"""The tasks of jobs, and their states."""

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
    """A task to be added to a job."""

    index: int
    name: str
    weight: int
    workload_id: int
    family: str = ""
    known_at_start: int = 0


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task and its state. `best_us` is of the entire dataset, all other values only of this job."""

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
            rows = [defaults | asdict(task) for task in tasks]
            self.for_each(self.insert(Task).on_conflict_do_nothing(), rows)

    def replace(self, job_id: str, tasks: Sequence[NewTask]) -> None:
        """Replace a job's tasks with these, after a repeated import of its model.

        A task whose workload the job had already keeps its row. The rows of tasks that the
        model no longer has get weight 0 and remain, because rounds refer to them.
        """
        query = select(Task.id, Task.workload_id).where(Task.job_id == job_id).order_by(Task.index)
        stored = defaultdict[int, list[int]](list)
        for task_id, workload_id in self.session.execute(query):
            stored[workload_id].append(task_id)
        if stored:  # frees the indices, which must be unique within a job at any time
            self.changed(update(Task).where(Task.job_id == job_id).values(index=-1 - Task.index))
        kept = [(stored[task.workload_id].pop(0), task) for task in tasks if stored.get(task.workload_id)]
        removed_ids = [task_id for ids in stored.values() for task_id in ids]
        rows = [
            {"of": task_id, "at": task.index, "called": task.name, "calls": task.weight, "why": ""}
            for task_id, task in kept
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
            self.for_each(update(Task).where(Task.id == bindparam("of")).values(new), rows)
        kept_indices = {task.index for _, task in kept}
        self.add_many(job_id, [task for task in tasks if task.index not in kept_indices])

    def get(self, task_id: int) -> Task:
        """Return the task with an id that came from the database."""
        return self.session.get_one(Task, task_id)

    def list(self, job_id: str) -> Sequence[Task]:
        """Return a job's tasks, in the order of the model."""
        return self.session.scalars(select(Task).where(_of(job_id)).order_by(Task.index)).all()

    def programs(self, job_id: str) -> Sequence[tuple[Task, Workload]]:
        """Return a job's tasks with their workloads, in the order of the model."""
        query = select(Task, Workload).join(Workload, Workload.id == Task.workload_id)
        rows = self.session.execute(query.where(_of(job_id)).order_by(Task.index))
        return [(task, workload) for task, workload in rows]

    def retire(self, reasons: Mapping[int, str]) -> None:
        """Retire tasks, so that no more rounds are planned; `reasons` by task id."""
        rows = [{"of": task_id, "why": reason} for task_id, reason in sorted(reasons.items())]
        if rows:
            self.for_each(
                update(Task).where(Task.id == bindparam("of")).values(retired=bindparam("why")), rows
            )

    def summaries(self, job_id: str) -> Sequence[TaskSummary]:
        """Return every task of a job and its state, in the order of the model."""
        # By task: trials, failed trials, and candidates that open rounds must still measure.
        counts = {name: Counter[int]() for name in ("trials", "failures", "in_flight")}
        trial = and_(Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL)
        columns = Round.task_id, Round.state, Round.size
        rounds = (
            select(*columns, func.count(Measurement.id), func.sum(case((failed(), 1), else_=0)))
            .join(Measurement, trial, isouter=True)
            .where(Round.job_id == job_id)
            .group_by(Round.id, *columns)
        )
        for task_id, state, size, trials, failures in self.session.execute(rounds):
            counts["trials"][task_id] += trials
            counts["failures"][task_id] += failures
            counts["in_flight"][task_id] += size - trials if RoundState(state).open else 0
        # Only some columns: a job may have ten thousand tasks, and a workload holds a program.
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
            TaskSummary(**row._asdict() | {name: by_task[row.id] for name, by_task in counts.items()})
            for row in self.session.execute(query)
        ]


def _of(job_id: str) -> ColumnElement[bool]:
    """Return SQL: whether a task belongs to this job and its model, as imported last, still has it."""
    return and_(Task.job_id == job_id, Task.weight > 0)


def workload_is_busy() -> ColumnElement[bool]:
    """Return SQL: whether any job has an open round for the task's workload on its job's target."""
    is_open = Round.state.in_((RoundState.QUEUED, RoundState.LEASED))
    same_workload = Round.workload_id == Task.workload_id, Round.target_id == Job.target_id
    return exists(select(Round.id).where(*same_workload, is_open).correlate(Task, Job))
