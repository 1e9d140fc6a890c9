"""Histories of a job's tasks, for planning; a round counts for every job with a task of its workload."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, not_, or_, select, tuple_
from sqlalchemy.orm import aliased

from db.repositories.base import Repository
from db.repositories.measurement_filters import eligible, is_same_context
from db.repositories.tasks import workload_is_busy
from db.tables import Job, Measurement, Round, Task, Workload
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind, RoundState

_Finish = aliased(Measurement, name="finish")
_Trial = aliased(Measurement, name="tried")
_Wrong = aliased(Measurement, name="wrong")


@dataclass(frozen=True, slots=True)
class WorkloadRound:
    """One round of a workload on the job's target, and its results."""

    job_id: str
    state: RoundState
    size: int
    trials: int
    best_us: float | None  # without candidates that computed wrong results
    elsewhere: bool  # all its times are from other measuring contexts than the job's
    wall_sec: float | None
    closed_at: float | None


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """One task. `known_us`: its best time in a finish, unless a round in the job's context took it, too."""

    id: int
    index: int
    name: str
    weight: int
    family: str
    known_at_start: int
    retired: str
    workload_id: int
    flops: float
    args: Mapping[str, Any]  # Workload.args
    blocked: bool  # its workload has an open round on this target, of this job or another
    known_us: float | None
    rounds: tuple[WorkloadRound, ...] = ()  # the job's, and closed ones of others, in closing order


class TaskHistories(Repository):
    """Reads a job's tasks in its measuring context."""

    def of(self, job: Job) -> Sequence[TaskHistory]:
        """Return the histories of a job's tasks, in the order of the model."""
        rounds = self._rounds(job)
        tasks = [TaskHistory(*row) for row in self.session.execute(_tasks(job))]
        return [replace(task, rounds=tuple(rounds.get(task.workload_id, ()))) for task in tasks]

    def _rounds(self, job: Job) -> Mapping[int, Sequence[WorkloadRound]]:
        rounds = defaultdict[int, list[WorkloadRound]](list)
        for workload_id, job_id, state, *rest in self.session.execute(_rounds(job)):
            rounds[workload_id].append(WorkloadRound(job_id, RoundState(state), *rest))
        return rounds


def _tasks(job: Job) -> Select[*tuple[Any, ...]]:
    columns = Task.id, Task.index, Task.name, Task.weight, Task.family, Task.known_at_start, Task.retired
    known_us = case((~_was_tried(), _Finish.latency_us))
    same_workload = Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id
    timed = Measurement.kind == MeasurementKind.FINISH, eligible(), is_same_context()
    finishes = select(Measurement.id).where(*same_workload, *timed).order_by(Measurement.latency_us).limit(1)
    best = finishes.correlate(Task, Job).scalar_subquery()
    return (
        select(*columns, Task.workload_id, Workload.flops, Workload.args, workload_is_busy(), known_us)
        .join(Workload, Workload.id == Task.workload_id)
        .join(Job, Job.id == Task.job_id)
        .join(_Finish, _Finish.id == best, isouter=True)
        .where(Task.job_id == job.id)
        .order_by(Task.index)
    )


def _was_tried() -> ColumnElement[bool]:
    """Return SQL: whether a round timed the candidate, so that its time in a finish is only a repeat."""
    same_candidate = and_(
        _Trial.workload_id == _Finish.workload_id,
        _Trial.target_id == _Finish.target_id,
        _Trial.latency_us.is_not(None),
        _Trial.kind == MeasurementKind.TRIAL,
        _Trial.context_id == _Finish.context_id,
        _Trial.sketch_id == _Finish.sketch_id,
        _Trial.decisions == _Finish.decisions,
    )
    return exists(select(_Trial.id).where(same_candidate).correlate(_Finish))


def _rounds(job: Job) -> Select[*tuple[Any, ...]]:
    workloads = select(Task.workload_id).where(Task.job_id == job.id)
    in_flight = Round.state.in_((RoundState.QUEUED, RoundState.LEASED))
    is_counted = or_(Round.job_id == job.id, and_(Job.context_id == job.context_id, ~in_flight))
    wall = Round.finished_at - Round.started_at
    columns = Round.workload_id, Round.job_id, Round.state, Round.size
    best = func.min(_correct_latency(workloads, job))
    is_timed = func.max(Measurement.latency_us).is_not(None)
    own_us = case((Measurement.context_id == job.context_id, Measurement.latency_us))
    trials = func.count(Measurement.id), best, and_(is_timed, not_(func.max(own_us).is_not(None)))
    trial = and_(Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL)
    return (
        select(*columns, *trials, wall, Round.finished_at)
        .join(Job, Job.id == Round.job_id)
        .join(Measurement, trial, isouter=True)
        .where(Round.workload_id.in_(workloads), Round.target_id == job.target_id, is_counted)
        .group_by(Round.id)
        .order_by(in_flight, Round.finished_at, Round.id)
    )


def _correct_latency(workloads: Select[int], job: Job) -> ColumnElement[float | None]:
    """Return SQL: the latency in the job's context; null if the candidate ever gave a wrong result."""
    wrong = select(_Wrong.workload_id, _Wrong.sketch_id, _Wrong.decisions).where(
        _Wrong.workload_id.in_(workloads),
        _Wrong.target_id == job.target_id,
        _Wrong.latency_us.is_(None),  # so that the index of failures is used
        _Wrong.outcome == Outcome.WRONG_RESULT,
    )
    candidate = tuple_(Measurement.workload_id, Measurement.sketch_id, Measurement.decisions)
    is_own_context = Measurement.context_id == job.context_id
    return case((and_(is_own_context, candidate.not_in(wrong)), Measurement.latency_us))
