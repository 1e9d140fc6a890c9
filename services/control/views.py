"""A job's rows as the planner's plain values."""

from collections.abc import Iterator

from sqlalchemy.orm import Session

from db.repositories.contexts import Contexts
from db.repositories.rounds import Rounds
from db.repositories.tasks import RoundResult, Tasks, TaskSummary
from db.session import read_clock
from db.tables import Device, Job
from mallorn.core.options import JobOptions
from mallorn.core.states import RoundState
from services.planner.values import JobView, Point, TaskView

# What the finish takes, set aside from a budget in minutes: measured again, compiled, checked, timed.
FINISH_SEC = 15.0
FINISH_SEC_PER_TASK = 2.5


def measuring_context(session: Session, device: Device, options: JobOptions) -> int:
    """The context in which all times of a job with these options are taken on this class of host."""
    host = device.host_class, device.tvm_version, device.threads
    return Contexts(session).ensure(device.target_id, *host, options.timing()).id


def job_view(session: Session, job: Job, options: JobOptions, slots: int) -> JobView:
    """What the planner needs to know of a job, now."""
    tasks = Tasks(session).summaries(job.id)
    elapsed = read_clock(session) - job.created_at
    return JobView(
        id=job.id,
        seed=job.seed,
        policy=options.policy,
        round_size=options.round_size,
        trials=job.trials,
        tasks=tuple(_task_view(task) for task in tasks),
        rounds_planned=Rounds(session).next_index(job.id),
        slots=slots,
        seconds_left=_seconds_left(job, elapsed, len(tasks)),
        seconds_per_trial=Rounds(session).seconds_per_trial(job.id),
    )


def _seconds_left(job: Job, elapsed: float, tasks: int) -> float | None:
    """Time to tune; what is asked for on top of an export that met its deadline is asked for in trials."""
    if job.minutes is None or job.export_uri is not None:
        return None
    reserve = FINISH_SEC + FINISH_SEC_PER_TASK * tasks
    return job.minutes * 60 - elapsed - reserve


def _task_view(task: TaskSummary) -> TaskView:
    closed = [result for result in task.rounds if not result.state.open]
    return TaskView(
        id=task.id,
        index=task.index,
        name=task.name,
        weight=task.weight,
        flops=task.flops,
        family=task.family,
        trials=task.trials,
        in_flight=task.in_flight,
        blocked=task.blocked,
        rounds=len(closed),
        points=tuple(_points(task, closed)),
        known_us=task.known_us,
        failed_rounds=_barren(closed),
        lost_rounds=_lost(closed),
        exhausted=any(result.state == RoundState.DONE and result.trials < result.size for result in closed),
        retired=task.retired,
    )


def _points(task: TaskSummary, closed: list[RoundResult]) -> Iterator[Point]:
    trials = task.known_at_start
    for result in closed:
        trials += result.trials
        yield Point(trials, result.best_us)


def _barren(closed: list[RoundResult]) -> int:
    """Rounds since the last one that brought a valid result, those that never ran left out."""
    count = 0
    for result in reversed(closed):
        if result.best_us is not None:
            break
        count += result.trials > 0 or result.state == RoundState.POISON
    return count


def _lost(closed: list[RoundResult]) -> int:
    """How many of the newest rounds were given up after they lost worker after worker."""
    ran = [result.state for result in closed if result.state != RoundState.CANCELLED]
    return next((at for at, state in enumerate(reversed(ran)) if state != RoundState.POISON), len(ran))
