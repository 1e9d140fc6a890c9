"""Best-so-far curve: total latency of a job's tasks (latency times calls) by round."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from mallorn.core.values.decision_log import RoundStatus
from mallorn.core.values.job import TaskStatus


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Total latency of the tasks after `trials` outcomes, `sec` seconds from submission."""

    trials: int
    sec: float
    total_us: float
    round: int | None = None  # the index of the round that ended here; None before the first


def curve(rounds: Iterable[RoundStatus], tasks: Sequence[TaskStatus], created_at: float) -> list[CurvePoint]:
    """Return a point for each ended round, in the order in which rounds ended.

    Points begin where every task has a time: at 0 trials if earlier jobs measured all tasks.
    """
    rows = sorted(rounds, key=lambda row: row.index)
    weights = {task.index: task.weight for task in select_timed_tasks(tasks)}
    best_us = best_us_before_job(rows, tasks)
    points: list[CurvePoint] = []

    def add_point(trials: int, sec: float, index: int | None) -> None:
        if weights and (total_us := total(best_us, weights)) is not None:
            points.append(CurvePoint(trials, sec, total_us, index))

    add_point(0, 0.0, None)
    trials = 0
    ends = [(row.finished_at, row) for row in rows if row.finished_at is not None]
    for finished_at, row in sorted(ends, key=lambda end: end[0]):
        trials += row.trials
        best_us[row.task_index] = lower_or_none(best_us[row.task_index], row.best_us)
        add_point(trials, finished_at - created_at, row.index)
    return points


def best_total(points: Iterable[CurvePoint], trials: float = inf, sec: float = inf) -> float | None:
    """Return the lowest total within so many trials and seconds; None if no point is that early."""
    totals = (point.total_us for point in points if point.trials <= trials and point.sec <= sec)
    return min(totals, default=None)


def best_us_by_task(rounds: Iterable[RoundStatus], tasks: Sequence[TaskStatus]) -> dict[int, float | None]:
    """Return each task's best latency, from the job's rounds and from before the job."""
    rows = sorted(rounds, key=lambda row: row.index)
    best_us = best_us_before_job(rows, tasks)
    for row in rows:
        best_us[row.task_index] = lower_or_none(
            best_us[row.task_index], lower_or_none(row.previous_best_us, row.best_us)
        )
    return best_us


def select_timed_tasks(tasks: Iterable[TaskStatus]) -> list[TaskStatus]:
    """Return the tasks that have a time; tasks too small to matter never get one."""
    return [task for task in tasks if task.latency_us is not None]


def best_us_before_job(rounds: Iterable[RoundStatus], tasks: Iterable[TaskStatus]) -> dict[int, float | None]:
    """Return each task's best latency before the job's first round for it; may be None."""
    best_us = {task.index: task.latency_us for task in tasks}
    for row in reversed(list(rounds)):
        best_us[row.task_index] = row.previous_best_us
    return best_us


def total(best_us: Mapping[int, float | None], weights: Mapping[int, int]) -> float | None:
    """Return the sum over tasks of latency times weight; None if a task has no time."""
    total_us = 0.0
    for index, weight in weights.items():
        if (best := best_us[index]) is None:
            return None
        total_us += weight * best
    return total_us


def lower_or_none(first: float | None, second: float | None) -> float | None:
    """Return the smaller value, ignoring None."""
    return min((value for value in (first, second) if value is not None), default=None)
