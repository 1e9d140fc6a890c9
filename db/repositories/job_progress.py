"""The progress of jobs: their trials, outcomes and best times."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from mallorn.core.outcomes import LEFT_UNBUILT, Outcome
from mallorn.core.states import MeasurementKind, RoundState
from mallorn.db.repositories.measurement_filters import best_of_task, was_left_unbuilt
from mallorn.db.tables import Job, Measurement, Round, Task

Outcomes = Mapping[str | None, dict[str, int]]  # number of trials by job and outcome


@dataclass(frozen=True, slots=True)
class Progress:
    """A job's trials, and the best times and call counts of its tasks, by task id."""

    spent: int
    open_candidates: int  # candidates of open rounds that are not committed yet
    outcomes: dict[str, int]
    best_us: dict[int, float]
    weights: dict[int, int]  # how often the model calls each task
    steered: bool  # True after the first pass: some task has a second round
    awaited: int  # tasks with a round and no time yet that may still get one

    @property
    def failures(self) -> dict[str, int]:
        return {
            name: count for name, count in self.outcomes.items() if name not in (Outcome.OK, LEFT_UNBUILT)
        }

    @property
    def unbuilt_candidates(self) -> int:
        return self.outcomes.get(LEFT_UNBUILT, 0)


def progress(session: Session, job: Job) -> Progress:
    return progress_of(session, [job])[job.id]


def progress_of(session: Session, jobs: Sequence[Job]) -> dict[str, Progress]:
    """Return the progress of each job by its id, with a few indexed queries for all jobs.

    SQL counts the trials. Only build errors are read, as their text shows which candidates
    were not compiled on purpose.
    """
    ids = [job.id for job in jobs]
    outcomes = _split_build_errors(session, count_by_outcome(session, ids))
    is_open = Round.job_id.in_(ids), Round.state.in_((RoundState.QUEUED, RoundState.LEASED))
    trial = Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL
    committed = select(func.count()).where(*trial).correlate(Round).scalar_subquery()
    open_candidates: Counter[str] = Counter()
    for job_id, size, count in session.execute(select(Round.job_id, Round.size, committed).where(*is_open)):
        open_candidates[job_id] += max(0, size - count)
    task_query = select(Task.job_id, Task.id, Task.weight, best_of_task().label("best_us"))
    task_query = task_query.join(Job, Job.id == Task.job_id).where(Task.job_id.in_(ids), Task.weight > 0)
    key = Round.job_id, Task.id, Task.retired
    visit_query = select(*key, func.count(Round.id).label("rounds")).join(Round, Round.task_id == Task.id)
    visit_query = visit_query.where(Round.job_id.in_(ids)).group_by(*key)
    tasks, visits = defaultdict[str, list[Any]](list), defaultdict[str, list[Any]](list)
    query: Select[*tuple[Any, ...]]
    for query, rows_by_job in ((task_query, tasks), (visit_query, visits)):
        for row in session.execute(query):
            rows_by_job[row.job_id].append(row)
    progress_by_job: dict[str, Progress] = {}
    for job_id in ids:
        best_us = {task.id: task.best_us for task in tasks[job_id] if task.best_us is not None}
        progress_by_job[job_id] = Progress(
            spent=sum(outcomes[job_id].values()),
            open_candidates=open_candidates[job_id],
            outcomes=outcomes[job_id],
            best_us=best_us,
            weights={task.id: task.weight for task in tasks[job_id]},
            steered=any(visit.rounds > 1 for visit in visits[job_id]),
            awaited=sum(visit.id not in best_us and not visit.retired for visit in visits[job_id]),
        )
    return progress_by_job


def count_by_outcome(session: Session, job_ids: Sequence[str]) -> Outcomes:
    trials = Measurement.job_id.in_(job_ids), Measurement.kind == MeasurementKind.TRIAL
    key = Measurement.job_id, Measurement.outcome
    counts: defaultdict[str | None, dict[str, int]] = defaultdict(dict)
    for job_id, outcome, count in session.execute(select(*key, func.count()).where(*trials).group_by(*key)):
        counts[job_id][outcome] = count
    return counts


def _split_build_errors(session: Session, outcomes: Outcomes) -> Outcomes:
    """Count candidates that were not compiled on purpose apart from other build errors."""
    ids = [job_id for job_id, counts in outcomes.items() if Outcome.BUILD_ERROR in counts]
    trials = Measurement.job_id.in_(ids), Measurement.kind == MeasurementKind.TRIAL
    query = select(Measurement.job_id, func.count()).where(*trials, was_left_unbuilt())
    by_job = defaultdict[str | None, dict[str, int]](dict, outcomes)
    for job_id, unbuilt in session.execute(query.group_by(Measurement.job_id)) if ids else ():
        counts = Counter(by_job[job_id]) - Counter({Outcome.BUILD_ERROR: unbuilt})
        by_job[job_id] = {**counts, LEFT_UNBUILT: unbuilt}
    return by_job
