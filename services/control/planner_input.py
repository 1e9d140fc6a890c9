"""Converts a job's rows, and all rounds of its workloads, to the planner's plain values."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from sqlalchemy.orm import Session

from db.repositories.fair_shares import FairShares
from db.repositories.measuring_contexts import Contexts
from db.repositories.rounds import Rounds
from db.repositories.tasks import TaskHistory, WorkloadRound
from db.repositories.workers import Workers
from db.tables import Device, Job
from mallorn.core.job_options import JobOptions
from mallorn.core.stand_in_measurers import is_built_by_tvm
from mallorn.core.states import RoundState
from mallorn.core.values.machine import limit_us
from services.planner.planner_values import JobView, Point, TaskView


def points(job: Job, task: TaskHistory) -> Iterator[Point]:
    """Yield a point per round with measurements, in closing order, with cumulative trials."""
    measured = [row for row in task.rounds if has_run(row) and row.trials and not row.elsewhere]
    # `known_at_start` counts the dataset's rows at import; subtract rounds yielded here.
    counted = [row for row in measured if row.job_id != job.id and (row.closed_at or 0.0) < job.created_at]
    trials = max(0, task.known_at_start - sum(row.trials for row in counted))
    for row in measured:
        trials += row.trials
        yield Point(trials, row.best_us)


def has_run(row: WorkloadRound) -> bool:
    """Return whether a round is closed and was not withdrawn before any worker began it."""
    return not row.state.open and (row.trials > 0 or row.state != RoundState.CANCELLED)


def seconds_per_trial(rounds: Iterable[WorkloadRound]) -> float | None:
    """Return the wall time per trial of finished rounds; None before the first."""
    done = [row for row in rounds if row.state == RoundState.DONE and row.wall_sec and row.trials]
    trials = sum(row.trials for row in done)
    return sum(row.wall_sec or 0.0 for row in done) / trials if trials else None


def barren(closed: Sequence[WorkloadRound]) -> int:
    """Return the number of rounds since the last valid result, except those never run."""
    count = 0
    for row in reversed(closed):
        if row.best_us is not None:
            break
        count += row.trials > 0 or row.state == RoundState.POISON
    return count


def lost(closed: Sequence[WorkloadRound]) -> int:
    """Return how many newest rounds in a row were given up after repeated losses."""
    ran = [row.state for row in closed if row.state != RoundState.CANCELLED]
    return next((at for at, state in enumerate(reversed(ran)) if state != RoundState.POISON), len(ran))


def measuring_context(session: Session, device: Device, options: JobOptions) -> int:
    """Return the id of the measuring context for these options on this device's class."""
    host = device.host_class, device.tvm_version, device.threads
    builder = Workers(session).builder() if is_built_by_tvm(options) else None
    return Contexts(session).ensure(device.target_id, *host, options.timing(), builder).id


def job_view(session: Session, job: Job, options: JobOptions, tasks: Sequence[TaskHistory]) -> JobView:
    """Return the planner's view of a job, with 0 slots: the caller adds those dealt to it."""
    own = [row for task in tasks for row in task.rounds if row.job_id == job.id]
    all_rounds = [row for task in tasks for row in task.rounds]
    return JobView(
        id=job.id,
        seed=job.seed,
        policy=options.policy,
        round_size=options.round_size,
        trials=job.trials,
        tasks=tuple(_task_view(job, task, options.only) for task in tasks),
        rounds_planned=Rounds(session).next_index(job.id),
        slots=0,
        seconds_left=FairShares(session).seconds_left(job.id),
        seconds_per_trial=seconds_per_trial(own) or seconds_per_trial(all_rounds),
        task_trials=options.task_trials,
    )


def _task_view(job: Job, task: TaskHistory, only: Sequence[str]) -> TaskView:
    own = [row for row in task.rounds if row.job_id == job.id]
    closed = [row for row in own if has_run(row) and not row.elsewhere]
    return TaskView(
        id=task.id,
        index=task.index,
        name=task.name,
        weight=task.weight,
        flops=task.flops,
        family=task.family,
        trials=sum(row.trials for row in own),
        in_flight=sum(row.size - row.trials for row in own if row.state.open),
        blocked=bool(task.blocked),
        rounds=len(closed),
        points=tuple(points(job, task)),
        known_us=task.known_us,
        seconds_per_trial=seconds_per_trial(task.rounds),
        failed_rounds=barren(closed),
        lost_rounds=lost(closed),
        # A task has weight 0 if only replaced code extracted it from the model.
        left_out=not task.weight or (bool(only) and not any(fnmatchcase(task.name, each) for each in only)),
        exhausted=any(row.state == RoundState.DONE and row.trials < row.size for row in closed),
        retired=task.retired,
        limit_us=limit_us(job.machine, task.flops, task.args["args"]),
    )
