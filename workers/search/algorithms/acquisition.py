"""Three acquisition functions for targets that are minimised."""

from collections.abc import Callable
from typing import Final

import numpy as np
from scipy.special import ndtr

from costmodels.base import Column

# From mean, deviation, the best target so far and the wanted exploration; higher is better.
Acquisition = Callable[[Column, Column, float, float], Column]

MOST_DEVIATIONS: Final = 2.0  # how optimistic the confidence bound is at full exploration


def expected_improvement(mean: Column, std: Column, best: float, exploration: float) -> Column:
    gap = best - exploration * std.mean() - mean
    z = gap / std
    return np.asarray(gap * ndtr(z) + std * np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi))


def probability_of_improvement(mean: Column, std: Column, best: float, exploration: float) -> Column:
    return np.asarray((best - exploration * std.mean() - mean) / std)  # ranks as the probability does


def lower_bound(mean: Column, std: Column, best: float, exploration: float) -> Column:
    return np.asarray(best - (mean - MOST_DEVIATIONS * exploration * std))


ACQUISITIONS: Final[dict[str, Acquisition]] = {
    "ei": expected_improvement,
    "pi": probability_of_improvement,
    "lcb": lower_bound,
}
