"""Forecasts in microseconds from a Student's t of the next log latency, for many tasks."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from scipy.special import stdtr, stdtrit

from services.planner.belief import Forecast
from services.planner.curve_fit import Array
from services.planner.learning_curve_points import NOISE

TAIL: Final = 0.1  # probability outside each end of the interval
# Rounds miss a curve more often than they beat it, so around a known curve the lower side is
# this much narrower. Uncertainty of the curve itself, after few rounds, is symmetric.
LOWER_SIDE: Final = 0.5
LEAP_DROP: Final = 0.1  # share of the best latency that a leap (a gain off the curve) saves
LARGEST_LOG: Final = 200.0
SMALLEST: Final = 1e-12
_NODES: Final = 40


@dataclass(frozen=True, slots=True)
class StudentT:
    """Student's t parameters, one entry per task; logarithms of microseconds."""

    centre: Array
    scale: Array
    freedom: Array
    lower: Array  # width of the lower side, relative to the upper one
    best: Array  # the best latency so far
    valid: Array  # the probability that the round brings a valid result at all
    record: Array  # upper bound on the probability of a gain, from the drought
    leap: Array  # the probability of a leap


def forecasts(known: StudentT) -> list[Forecast]:
    """Return the forecast of each task's next round."""
    freedom, row = np.unique(np.round(known.freedom, 1), return_inverse=True)
    ends: Array = stdtrit(freedom[:, None], np.array([TAIL, 0.5, 1 - TAIL]))
    low, expected, high = np.exp(_clipped(_log_us(known, ends[row]).T))
    reach = (known.best + np.log1p(-NOISE) - known.centre) / known.scale
    # Probability that a round on its curve gains more than noise.
    beats = stdtr(known.freedom, np.where(reach < 0, reach / known.lower, reach))
    factor = np.minimum(1.0, known.record / np.maximum(beats, SMALLEST))
    weights = _rule()[1]
    quantiles = np.stack([_quantiles(float(nu)) for nu in freedom])
    # How far each quadrature node lies below the best, as a share of it: one row per task.
    log_us = _clipped(_log_us(known, quantiles[row]))
    drop = -np.expm1(np.minimum(log_us - known.best[:, None], 0.0))
    mean = known.valid * _mix(factor * (drop @ weights), LEAP_DROP, known.leap)
    square = known.valid * _mix(factor * (drop**2 @ weights), LEAP_DROP**2, known.leap)
    promise = known.valid * _mix(np.minimum(beats, known.record), 1.0, known.leap)
    best = np.exp(known.best)
    sd = best * np.sqrt(np.maximum(square - mean**2, 0.0))
    columns = (expected, low, high, best * mean, sd, promise)
    return [Forecast(*row) for row in np.stack(columns, axis=1).tolist()]


def _log_us(params: StudentT, quantiles: Array) -> Array:
    """Return log latencies at these quantiles of Student's t with the narrowed lower side."""
    side = np.where(quantiles < 0, params.lower[:, None], 1.0)
    return np.asarray(params.centre[:, None] + params.scale[:, None] * side * quantiles)


def lower_side(rounds: int) -> float:
    """Return the relative width of the lower side after this many rounds."""
    return LOWER_SIDE + (1.0 - LOWER_SIDE) / max(1, rounds)


def _mix(along: Array, leapt: float, leap: Array) -> Array:
    """Return the mean over both cases: the round follows its curve, or leaps."""
    return along + leap * (leapt - along)


def _clipped(values: Array) -> Array:
    return np.asarray(np.clip(values, -LARGEST_LOG, LARGEST_LOG))


@lru_cache(maxsize=1)
def _rule() -> tuple[Array, Array]:
    """Return quadrature nodes and weights, dense in the lower tail, where gains are."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    unit = (nodes + 1) / 2
    return unit**3, weights / 2 * 3 * unit**2


@lru_cache(maxsize=4096)
def _quantiles(freedom: float) -> Array:
    return np.asarray(stdtrit(freedom, _rule()[0]))
