"""How many more trials are useful to a job.

A task rests after some rounds without a gain (see `resting`); until then its next rounds may pay. So useful
trials are those spent plus, for every task that matters, those missing until it would rest if nothing more
were found. It is a lower bound: every gain restarts the count of its task.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from services.planner.curve import STANDARD_SIZE, last_gain
from services.planner.first_pass import SHARE_THAT_MATTERS
from services.planner.resting import ROUNDS_TO_REST
from services.planner.values import Point

TRIALS_TO_REST: Final = ROUNDS_TO_REST * STANDARD_SIZE


@dataclass(frozen=True, slots=True)
class TaskSpending:
    """What a job spent on one task, and the result. `best_us` None: no time is known."""

    weight: int
    best_us: float | None
    points: tuple[Point, ...]  # its own rounds, their trials counted on top of `known_trials`
    known_trials: int = 0
    over: bool = False  # the planner has finished with it


def trials_left(efforts: Iterable[TaskSpending]) -> int:
    """How many more trials may pay, over all tasks that matter."""
    tasks = list(efforts)
    total_us = sum(task.weight * task.best_us for task in tasks if task.best_us is not None)
    least_us = SHARE_THAT_MATTERS * total_us
    matter = [task for task in tasks if task.best_us is None or task.weight * task.best_us >= least_us]
    # At least one round each, because only the planner decides that a task rests.
    return sum(max(STANDARD_SIZE, TRIALS_TO_REST - _since_gain(task)) for task in matter if not task.over)


def _since_gain(task: TaskSpending) -> int:
    """Trials since the best fell by more than noise would explain."""
    if not task.points:
        return task.known_trials
    return task.points[-1].trials - int(last_gain(task.points, known_us=None, first=0.0))
