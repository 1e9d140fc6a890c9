"""What further rounds are expected to bring a job, from the forecasts of its tasks' next ones.

A task's n-th further round is the best since its last gain with probability 1 / (drought + n), as
exchangeable rounds are. So its gain is taken to be the next one's, falling in that proportion: rather too
much, because gains become smaller, too. Nothing is expected beyond what the machine takes at least.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import inf
from typing import Final

from mallorn.core.values.expected_gain import LOOK_AHEAD, Outlook
from services.planner.belief import Forecast
from services.planner.learning_curve_points import STANDARD_SIZE, curve
from services.planner.planner_values import TaskView

# Nobody knows what comes after so many more rounds of a job.
HORIZON: Final = 256


@dataclass(frozen=True, slots=True)
class ExpectedGain:
    """The weighted latency of the tasks that have a time, and what each further round would take off it."""

    total_us: float
    gains_us: tuple[float, ...]  # the most worthwhile round first, so that they only fall
    size: int  # candidates of a round
    limit_us: float | None = None  # what the machine takes at least, where that is known of every task

    def gain(self, after: int = 0) -> float:
        """The share of the total that the next trials win, seen from `after` so many rounds."""
        rounds = LOOK_AHEAD / self.size
        whole = after + int(rounds)
        won = sum(self.gains_us[after:whole]) + sum(self.gains_us[whole : whole + 1]) * (rounds % 1)
        return won / self.total_us if self.total_us else 0.0

    def rounds_worth(self, least: float) -> int:
        """How many rounds until the next trials win less than this share."""
        known = range(len(self.gains_us))
        return next((at for at in known if self.gain(at) < least), len(known))

    def outlook(self, trials: int) -> Outlook | None:
        """With so many trials to come; None while no task has a time."""
        if not self.total_us:
            return None
        won_us = sum(self.gains_us[: trials // self.size])
        end_us = max(self.total_us - won_us, self.limit_us or 0.0)
        now = {"now_us": self.total_us, "limit_us": self.limit_us}
        return Outlook.model_validate(now | {"end_us": end_us, "gain": self.gain(), "trials": trials})


def prospects(
    tasks: Sequence[TaskView], forecasts: Sequence[Forecast], retired: Sequence[str], size: int
) -> ExpectedGain:
    """Of the tasks that have a time; those that get no more rounds bring nothing."""
    timed = [task for task in tasks if task.best_us is not None]
    tuned = zip(tasks, forecasts, retired, strict=True)
    falls = [
        _gains(task, ahead, size) for task, ahead, over in tuned if task.best_us is not None and not over
    ]
    # No task is slower than it was measured.
    limits = [min(task.limit_us, task.best_us or inf) * task.weight for task in timed if task.limit_us]
    return ExpectedGain(
        total_us=sum(sorted(task.weight * (task.best_us or 0.0) for task in timed)),
        gains_us=tuple(islice(merge(*falls, reverse=True), HORIZON)),
        size=size,
        limit_us=sum(sorted(limits)) if limits and len(limits) == len(timed) else None,
    )


def _gains(task: TaskView, ahead: Forecast, size: int) -> Iterator[float]:
    """What each further round of a task is expected to take off the weighted total."""
    seen = curve(task.points, task.known_us)
    tried = 1.0 + (seen.drought if seen else 0.0) * STANDARD_SIZE / size
    best_us, limit_us = task.best_us or 0.0, task.limit_us
    # A limit that was beaten was none.
    left_us = inf if limit_us is None or limit_us >= best_us else best_us - limit_us
    for more in range(HORIZON):
        gain_us = min(left_us, ahead.gain_us * tried / (tried + more))
        left_us -= gain_us
        yield task.weight * gain_us
