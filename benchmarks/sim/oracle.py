"""How few trials would do for someone who knew all curves: no policy can need fewer."""

from math import inf
from typing import Final

import numpy as np

from benchmarks.sim.curves import ModelCurves, TaskCurve

Levels = np.ndarray[tuple[int], np.dtype[np.float64]]

ROUND: Final = 16


def fewest_trials(model: ModelCurves, factor: float, size: int = ROUND) -> int:
    """The least number of trials, in rounds of `size`, with which the weighted latency is within `factor`.

    Exact: the best division of each number of rounds among the tasks, one task after the other.
    """
    lowest: Levels = np.zeros(1)  # weighted latency by rounds given to the tasks so far
    for task in model.tasks:
        lowest = _divided(lowest, _by_rounds(task, size))
    enough = np.flatnonzero(lowest <= factor * model.final_us * (1 + 1e-12))
    return min(int(enough[0]) * size, model.trials)


def _by_rounds(task: TaskCurve, size: int) -> Levels:
    """The weighted latency of a task after 0, 1, 2, ... rounds."""
    best, levels = task.untuned_us, [task.untuned_us]
    for start in range(0, len(task.candidates_us), size):
        found = task.candidates_us[start : start + size]
        best = min([best, *(latency for latency in found if latency is not None)])
        levels.append(best)
    return task.weight * np.array(levels)


def _divided(first: Levels, second: Levels) -> Levels:
    """The best sum for each number of rounds given to both together."""
    both = np.full(len(first) + len(second) - 1, inf)
    for rounds, level in enumerate(second):
        window = both[rounds : rounds + len(first)]
        np.minimum(window, first + level, out=window)
    return both
