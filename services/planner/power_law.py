"""The belief: a power law on log latency, its priors shared inside a family."""

from collections.abc import Sequence
from math import log
from typing import Final

import numpy as np

from services.planner.belief import Belief, Forecast
from services.planner.curve import Curve, curve, draws_shift
from services.planner.fit import REFERENCE, Array, Fit, Outlook, fit
from services.planner.level import levels
from services.planner.outlook import Predictions, forecasts, lower_side
from services.planner.pooling import Groups, curve_priors
from services.planner.values import TaskView

# How many times slower than a first batch's best a default schedule is assumed to be.
UNTUNED_FACTOR: Final = 4.0
LEVEL_FREEDOM: Final = 5.0
# Prior number of leaps.
LEAPS: Final = 0.25


class PowerLaw(Belief):
    """Exact posteriors over a grid of curve shapes; refit only where rounds or relatives changed."""

    def forecast(self, tasks: Sequence[TaskView], size: int) -> list[Forecast]:
        if not tasks:
            return []
        # A fixed order, because sums depend on it in the last digit.
        order = sorted(range(len(tasks)), key=lambda at: (tasks[at].index, tasks[at].id))
        known = forecasts(_predict([tasks[at] for at in order], size))
        placed = dict(zip(order, known, strict=True))
        return [placed[at] for at in range(len(tasks))]


def _predict(tasks: Sequence[TaskView], size: int) -> Predictions:
    groups = Groups.of([task.family for task in tasks])
    curves = [curve(task.points, task.known_us) for task in tasks]
    alone = [None if seen is None else fit(seen, REFERENCE) for seen in curves]
    priors = curve_priors(alone, groups)
    fits = [None if seen is None else fit(seen, prior) for seen, prior in zip(curves, priors, strict=True)]
    looks = _outlooks(tasks, fits, groups)
    return Predictions(
        centre=_column([look.centre for look in looks]) - draws_shift(size),
        scale=_column([look.scale for look in looks]),
        freedom=_column([look.freedom for look in looks]),
        lower=_column([lower_side(len(seen.log_us) if seen else 0) for seen in curves]),
        best=_column([_to_beat(task, look) for task, look in zip(tasks, looks, strict=True)]),
        valid=_column([_chance_of_any(task) for task in tasks]),
        record=_column([_chance_of_a_record(seen) for seen in curves]),
        leap=_column([_chance_of_a_leap(seen) for seen in curves]),
    )


def _outlooks(tasks: Sequence[TaskView], fits: Sequence[Fit | None], groups: Groups) -> list[Outlook]:
    mean, sd = levels(tasks, groups)
    guesses = [Outlook(centre, scale, LEVEL_FREEDOM) for centre, scale in zip(mean, sd, strict=True)]
    return [guess if known is None else known.outlook for guess, known in zip(guesses, fits, strict=True)]


def _to_beat(task: TaskView, look: Outlook) -> float:
    return look.centre + log(UNTUNED_FACTOR) if task.best_us is None else log(task.best_us)


def _chance_of_any(task: TaskView) -> float:
    """The probability that the next round brings a valid result, from the rounds so far."""
    valid = sum(point.best_us is not None for point in task.points) + (task.known_us is not None)
    rounds = len(task.points) + (task.known_us is not None)
    return (valid + 1) / (rounds + 1)


def _chance_of_a_record(seen: Curve | None) -> float:
    """An upper bound on a gain: how often the next of exchangeable rounds is the best since the last gain."""
    return 1.0 if seen is None else 1.0 / (1.0 + seen.drought)


def _chance_of_a_leap(seen: Curve | None) -> float:
    """The probability of a leap; it falls with the known rounds, and keeps a quiet task alive for a while."""
    return 0.0 if seen is None else LEAPS / (1 + len(seen.log_us))


def _column(values: Sequence[float]) -> Array:
    return np.array(values, dtype=np.float64)
