"""From a Student's t of the next log latency to a forecast in microseconds, for many tasks at once."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import stdtr, stdtrit

from services.planner.belief import Forecast
from services.planner.fit import Array

NOISE: Final = 0.01  # what measuring the same program again may differ by
TAIL: Final = 0.1  # probability outside each end of the interval
LARGEST_LOG: Final = 200.0
_NODES: Final = 40


@dataclass(frozen=True, slots=True)
class Predictions:
    """One entry a task; logarithms of microseconds."""

    centre: Array
    scale: Array
    freedom: Array
    best: Array  # what has to be beaten
    valid: Array  # the probability that the round brings a valid result at all


def forecasts(known: Predictions) -> list[Forecast]:
    """What each prediction means for the task's best latency."""
    freedom, row = np.unique(np.round(known.freedom, 1), return_inverse=True)
    quantiles = np.stack([_quantiles(float(nu)) for nu in freedom])[row]
    low, expected, high = (
        np.exp(_clipped(known.centre + known.scale * _ends(freedom)[row, at])) for at in range(3)
    )
    ahead = known.centre[:, None] + known.scale[:, None] * quantiles
    drop = -np.expm1(np.minimum(_clipped(ahead) - known.best[:, None], 0.0))
    weights = _rule()[1]
    mean, square = known.valid * (drop @ weights), known.valid * (drop**2 @ weights)
    best = np.exp(known.best)
    sd = best * np.sqrt(np.maximum(square - mean**2, 0.0))
    reach = (known.best + np.log1p(-NOISE) - known.centre) / known.scale
    promise = known.valid * stdtr(known.freedom, reach)
    columns = (expected, low, high, best * mean, sd, promise)
    return [Forecast(*row) for row in np.stack(columns, axis=1).tolist()]


def _clipped(values: Array) -> Array:
    result: Array = np.clip(values, -LARGEST_LOG, LARGEST_LOG)
    return result


@lru_cache(maxsize=1)
def _rule() -> tuple[Array, Array]:
    """Probabilities and weights of a quadrature that looks closely at the lower tail, where gains are."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    unit = (nodes + 1) / 2
    return unit**3, weights / 2 * 3 * unit**2


@lru_cache(maxsize=4096)
def _quantiles(freedom: float) -> Array:
    result: Array = stdtrit(freedom, _rule()[0])
    return result


def _ends(freedom: Array) -> Array:
    result: Array = stdtrit(freedom[:, None], np.array([TAIL, 0.5, 1 - TAIL]))
    return result
