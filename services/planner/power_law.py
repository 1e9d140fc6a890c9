"""The belief: a power law on log latency, its priors shared inside a family."""

from collections.abc import Sequence
from math import log
from typing import Final

import numpy as np

from services.planner.belief import Belief, Forecast
from services.planner.curve import curve, draws_shift
from services.planner.fit import REFERENCE, Array, Fit, Outlook, fit
from services.planner.level import levels
from services.planner.outlook import Predictions, forecasts
from services.planner.pooling import Groups, curve_priors
from services.planner.values import TaskView

# A task without a valid result runs its default schedule, so many times slower than a first batch's best.
UNTUNED_FACTOR: Final = 4.0
LEVEL_FREEDOM: Final = 5.0


class PowerLaw(Belief):
    """Exact posteriors over a grid of curve shapes; a refit happens where rounds or relatives changed."""

    def forecast(self, tasks: Sequence[TaskView], size: int) -> list[Forecast]:
        if not tasks:
            return []
        # Sums depend on their order in the last digit: always the same one.
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
        best=_column([_to_beat(task, look) for task, look in zip(tasks, looks, strict=True)]),
        valid=_column([_chance_of_any(task) for task in tasks]),
    )


def _outlooks(tasks: Sequence[TaskView], fits: Sequence[Fit | None], groups: Groups) -> list[Outlook]:
    mean, sd = levels(tasks, groups)
    guesses = [Outlook(centre, scale, LEVEL_FREEDOM) for centre, scale in zip(mean, sd, strict=True)]
    return [guess if known is None else known.outlook for guess, known in zip(guesses, fits, strict=True)]


def _to_beat(task: TaskView, look: Outlook) -> float:
    return look.centre + log(UNTUNED_FACTOR) if task.best_us is None else log(task.best_us)


def _chance_of_any(task: TaskView) -> float:
    """The probability that the next round brings anything valid, by how the rounds went so far."""
    valid = sum(point.best_us is not None for point in task.points) + (task.known_us is not None)
    rounds = len(task.points) + (task.known_us is not None)
    return (valid + 1) / (rounds + 1)


def _column(values: Sequence[float]) -> Array:
    return np.array(values, dtype=np.float64)
