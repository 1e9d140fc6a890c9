"""The progress of a job."""

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.repositories.best import best_of_task
from db.tables import Job, Measurement, Round, Task
from mallorn.core.states import MeasurementKind, RoundState


@dataclass(frozen=True, slots=True)
class Progress:
    """Trials of a job and their outcomes; `best_us` is by task id, for tasks that have a time."""

    planned: int | None  # None: not limited by trials
    spent: int
    in_flight: int  # candidates of open rounds that are not committed yet
    outcomes: dict[str, int]
    best_us: dict[int, float]
    steered: bool  # True after the first pass: some task has a second round
    awaited: int  # tasks with a round and no time yet that may still get one

    @property
    def failures(self) -> dict[str, int]:
        return {outcome: count for outcome, count in self.outcomes.items() if outcome != "ok"}


def progress(session: Session, job: Job) -> Progress:
    """Five queries, each answered from an index; none reads a row of another job."""
    outcomes = count_by_outcome(session, job.id)
    best = select(Task.id, best_of_task()).join(Job, Job.id == Task.job_id).where(Task.job_id == job.id)
    best_us = {task_id: time_us for task_id, time_us in session.execute(best) if time_us is not None}
    visits = _visits(session, job.id)
    return Progress(
        planned=job.trials,
        spent=sum(outcomes.values()),
        in_flight=_in_flight(session, job.id),
        outcomes=outcomes,
        best_us=best_us,
        steered=any(visit.rounds > 1 for visit in visits),
        awaited=sum(visit.task_id not in best_us and not visit.retired for visit in visits),
    )


def count_by_outcome(session: Session, job_id: str) -> dict[str, int]:
    """Trials of a job by outcome."""
    trials = Measurement.job_id == job_id, Measurement.kind == MeasurementKind.TRIAL
    query = select(Measurement.outcome, func.count()).where(*trials).group_by(Measurement.outcome)
    return dict(session.execute(query).all())


def _in_flight(session: Session, job_id: str) -> int:
    of_open = Round.job_id == job_id, Round.state.in_((RoundState.QUEUED, RoundState.LEASED))
    handed_out = session.scalar(select(func.coalesce(func.sum(Round.size), 0)).where(*of_open)) or 0
    trial = Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL
    committed = session.scalar(
        select(func.count()).select_from(Round).join(Measurement, trial[0] & trial[1]).where(*of_open)
    )
    return max(0, handed_out - (committed or 0))


class _Visit(NamedTuple):
    task_id: int
    retired: str
    rounds: int


def _visits(session: Session, job_id: str) -> list[_Visit]:
    """The number of rounds of each task that has any."""
    query = select(Task.id, Task.retired, func.count(Round.id)).join(Round, Round.task_id == Task.id)
    rows = session.execute(query.where(Round.job_id == job_id).group_by(Task.id, Task.retired))
    return [_Visit(*row) for row in rows]
