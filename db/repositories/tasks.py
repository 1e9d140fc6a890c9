"""Tasks of jobs, and their state."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select, update

from db.repositories.base import Repository
from db.repositories.best import best_of_task
from db.repositories.unbuilt import failed
from db.tables import Job, Measurement, Round, Task, Workload
from mallorn.core.states import MeasurementKind, RoundState


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
class RoundResult:
    """A round's committed trials and their best."""

    index: int
    state: RoundState
    size: int
    trials: int
    failures: int
    best_us: float | None


@dataclass(frozen=True, slots=True)
class TaskSummary:
    """A task and its state. `best_us` is over the whole dataset, `known_us` without this job's rows."""

    id: int
    index: int
    name: str
    weight: int
    family: str
    family_why: str
    known_at_start: int
    retired: str
    workload_id: int
    workload_key: str
    op: str
    structure: str
    flops: float
    best_us: float | None
    known_us: float | None
    blocked: bool  # its workload has an open round on this target, of this job or another
    rounds: tuple[RoundResult, ...]  # in the order they were planned

    @property
    def trials(self) -> int:
        return sum(result.trials for result in self.rounds)

    @property
    def failures(self) -> int:
        return sum(result.failures for result in self.rounds)

    @property
    def in_flight(self) -> int:
        """Candidates of open rounds that are not committed yet."""
        return sum(result.size - result.trials for result in self.rounds if result.state.open)


class Tasks(Repository):
    """Tasks of all jobs."""

    def add_many(self, job_id: str, tasks: Sequence[NewTask]) -> None:
        """Write a job's tasks; a second import of the job changes nothing."""
        if tasks:
            fresh = {"job_id": job_id, "retired": "", "family_why": "", "family_since": 0}
            rows = [fresh | asdict(task) for task in tasks]
            self.session.execute(self.insert(Task).values(rows).on_conflict_do_nothing())

    def get(self, task_id: int) -> Task:
        """The task of a round; its id comes from the database, so it exists."""
        return self.session.get_one(Task, task_id)

    def list(self, job_id: str) -> Sequence[Task]:
        """In the order of the model."""
        return self.session.scalars(select(Task).where(Task.job_id == job_id).order_by(Task.index)).all()

    def retire(self, reasons: Mapping[int, str]) -> None:
        """Retire tasks, with reasons by task id."""
        for task_id, reason in sorted(reasons.items()):
            self.changed(update(Task).where(Task.id == task_id).values(retired=reason))

    def summaries(self, job_id: str) -> Sequence[TaskSummary]:
        """Every task and its state, in the order of the model."""
        rounds = self._rounds(job_id)
        others = or_(Measurement.job_id.is_(None), Measurement.job_id != job_id)
        # Columns, not rows: a job may have ten thousand tasks, and each workload carries its whole program.
        task = Task.id, Task.index, Task.name, Task.weight, Task.family, Task.family_why, Task.known_at_start
        workload = Workload.id.label("workload_id"), Workload.key.label("workload_key")
        known = best_of_task().label("best_us"), best_of_task(others).label("known_us")
        query = (
            select(*task, Task.retired, *workload, Workload.op, Workload.structure, Workload.flops, *known)
            .add_columns(workload_is_busy().label("blocked"))
            .join(Workload, Workload.id == Task.workload_id)
            .join(Job, Job.id == Task.job_id)
            .where(Task.job_id == job_id)
            .order_by(Task.index)
        )
        found = self.session.execute(query)
        return [TaskSummary(**row._asdict(), rounds=tuple(rounds[row.id])) for row in found]

    def _rounds(self, job_id: str) -> Mapping[int, Sequence[RoundResult]]:
        trial = and_(Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL)
        failures = func.sum(case((failed(), 1), else_=0))
        columns = Round.task_id, Round.index, Round.state, Round.size
        query = (
            select(*columns, func.count(Measurement.id), failures, func.min(Measurement.latency_us))
            .join(Measurement, trial, isouter=True)
            .where(Round.job_id == job_id)
            .group_by(Round.id, *columns)
            .order_by(Round.index)
        )
        found = defaultdict[int, deque[RoundResult]](deque)
        for task_id, index, state, size, trials, failures, best in self.session.execute(query):
            found[task_id].append(RoundResult(index, RoundState(state), size, trials, failures, best))
        return found


def workload_is_busy() -> ColumnElement[bool]:
    """Whether the enclosing query's task has an open round on its job's target, of this job or another."""
    is_open = Round.state.in_((RoundState.QUEUED, RoundState.LEASED))
    same = Round.workload_id == Task.workload_id, Round.target_id == Job.target_id
    return exists(select(Round.id).where(*same, is_open).correlate(Task, Job))
