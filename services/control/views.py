"""A job's rows as the planner's plain values."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from sqlalchemy.orm import Session

from db.repositories.contexts import Contexts
from db.repositories.rounds import Rounds
from db.repositories.shares import Shares
from db.repositories.standings import Standing
from db.tables import Device, Job
from mallorn.core.limits import least_us
from mallorn.core.options import JobOptions
from mallorn.core.states import RoundState
from mallorn.core.values.machine import Machine
from services.control.curves import barren, has_run, lost, points, seconds_per_trial
from services.planner.values import JobView, TaskView


def measuring_context(session: Session, device: Device, options: JobOptions) -> int:
    """The context in which all times of a job with these options are taken on this class of host."""
    host = device.host_class, device.tvm_version, device.threads
    return Contexts(session).ensure(device.target_id, *host, options.timing()).id


def job_view(session: Session, job: Job, options: JobOptions, tasks: Sequence[Standing]) -> JobView:
    """What the planner needs to know of a job, now. It has no free slots until some are dealt to it."""
    own = [row for task in tasks for row in task.rounds if row.job_id == job.id]
    everyones = [row for task in tasks for row in task.rounds]
    return JobView(
        id=job.id,
        seed=job.seed,
        policy=options.policy,
        round_size=options.round_size,
        trials=job.trials,
        tasks=tuple(_task_view(job, task, options.only) for task in tasks),
        rounds_planned=Rounds(session).next_index(job.id),
        slots=0,
        seconds_left=Shares(session).seconds_left(job.id),
        seconds_per_trial=seconds_per_trial(own) or seconds_per_trial(everyones),
        task_trials=options.task_trials,
    )


def _task_view(job: Job, task: Standing, only: Sequence[str]) -> TaskView:
    own = [row for row in task.rounds if row.job_id == job.id]
    closed = [row for row in own if has_run(row)]
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
        left_out=bool(only) and not any(fnmatchcase(task.name, pattern) for pattern in only),
        exhausted=any(row.state == RoundState.DONE and row.trials < row.size for row in closed),
        retired=task.retired,
        limit_us=_limit_us(job.machine, task),
    )


def _limit_us(machine: Machine | None, task: Standing) -> float | None:
    """None where the machine was not measured: what is assumed of one limits nothing."""
    if machine is None or not machine.measured:
        return None
    tensors = [(str(dtype), tuple(shape)) for _, dtype, shape in task.args["args"]]
    return least_us(machine, task.flops, tensors) if task.flops or tensors else None
