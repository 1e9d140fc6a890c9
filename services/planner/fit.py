"""The posterior of a learning curve: log latency of a round's best against the trials that came before it.

`log y = start - drop * (1 - (1 + n / knot) ** -power) + noise`. For a given shape (knot, power) that is a
conjugate regression in closed form; a grid of shapes, weighted by their evidence, makes the posterior exact.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.planner.curve import MEMO, Curve

Array = NDArray[np.float64]

# A round counts half as much this many rounds later, as the search itself changes on the way.
HALF_LIFE_ROUNDS: Final = 10.0
START_SD: Final = 1.0
NOISE_STRENGTH: Final = 1.5  # the inverse gamma's shape: how firmly the noise is known beforehand

KNOTS: Final[Array] = np.geomspace(4.0, 2048.0, 12)
POWERS: Final[Array] = np.geomspace(0.2, 3.0, 12)
_LOG_KNOT: Final[Array] = np.repeat(np.log(KNOTS), len(POWERS))
_LOG_POWER: Final[Array] = np.tile(np.log(POWERS), len(KNOTS))
_KNOT: Final[Array] = np.exp(_LOG_KNOT)
_POWER: Final[Array] = np.exp(_LOG_POWER)
KNOT_SD: Final = 1.2
POWER_SD: Final = 0.6


@dataclass(frozen=True, slots=True)
class CurvePrior:
    """What is believed of a curve before its own rounds; logarithms of latency, knot and power."""

    drop: float = 0.4  # from the first random batch to the end
    drop_sd: float = 0.6
    noise: float = 0.06  # of a round's best around the curve
    log_knot: float = 3.5
    log_power: float = -0.2


REFERENCE: Final = CurvePrior()


@dataclass(frozen=True, slots=True)
class Outlook:
    """Student's t for the log latency of the next standard round's best."""

    centre: float
    scale: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Fit:
    """What one task's rounds say, and how much: each figure comes with its share of knowledge, 0 to 1."""

    outlook: Outlook
    drop: float
    drop_known: float
    noise_var: float
    noise_known: float  # this one in degrees of freedom
    log_knot: float
    knot_known: float
    log_power: float
    power_known: float


@lru_cache(maxsize=2 * MEMO)
def fit(seen: Curve, prior: CurvePrior) -> Fit:
    """The exact posterior of a curve, and where its next round is expected."""
    rounds = len(seen.log_us)
    weight = 0.5 ** (np.arange(rounds - 1, -1, -1) / HALF_LIFE_ROUNDS)
    level = np.array(seen.log_us) - seen.log_us[0]
    fall = _fall(np.array(seen.before))
    posterior = _posterior(weight, level, fall, prior)
    ahead = _fall(np.array([seen.ahead]))[:, 0]
    return _summary(posterior, ahead, seen.log_us[0], float(weight.sum()), prior)


def _fall(trials: Array) -> Array:
    """Minus the share of the drop that is done after so many trials: one row a shape."""
    result: Array = (1.0 + trials / _KNOT[:, None]) ** -_POWER[:, None] - 1.0
    return result


@dataclass(frozen=True, slots=True)
class _Posterior:
    """Normal-inverse-gamma of (start, drop), one entry a shape."""

    share: Array  # of each shape
    start: Array
    drop: Array
    var_start: Array  # times the noise's variance
    var_drop: Array
    cov: Array
    noise_var: Array
    misfit: Array  # the sum of squares that the curve leaves
    alpha: float


def _posterior(weight: Array, level: Array, fall: Array, prior: CurvePrior) -> _Posterior:
    firm_start, firm_drop = (prior.noise / START_SD) ** 2, (prior.noise / prior.drop_sd) ** 2
    a, b = weight.sum() + firm_start, fall @ weight
    d = (fall**2) @ weight + firm_drop
    right_start = level @ weight
    right_drop = fall @ (weight * level) + firm_drop * prior.drop
    determinant = a * d - b * b
    start = (d * right_start - b * right_drop) / determinant
    drop = (a * right_drop - b * right_start) / determinant
    alpha = NOISE_STRENGTH + weight.sum() / 2
    misfit = np.maximum(
        (level**2) @ weight + firm_drop * prior.drop**2 - start * right_start - drop * right_drop, 0.0
    )
    beta = NOISE_STRENGTH * prior.noise**2 + misfit / 2
    evidence = _log_shape_prior(prior) - np.log(determinant) / 2 - alpha * np.log(beta)
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    spread = d / determinant, a / determinant, -b / determinant
    return _Posterior(share, start, drop, *spread, beta / alpha, misfit, alpha)


def _log_shape_prior(prior: CurvePrior) -> Array:
    knot = (_LOG_KNOT - prior.log_knot) / KNOT_SD
    power = (_LOG_POWER - prior.log_power) / POWER_SD
    result: Array = -(knot**2 + power**2) / 2
    return result


def _summary(post: _Posterior, fall: Array, origin: float, rounds: float, prior: CurvePrior) -> Fit:
    drop, drop_var = _moments(post.share, post.drop, post.noise_var * post.var_drop)
    log_knot, knot_var = _moments(post.share, _LOG_KNOT)
    log_power, power_var = _moments(post.share, _LOG_POWER)
    return Fit(
        outlook=_outlook(post, fall, origin),
        drop=drop,
        drop_known=_known(drop_var, prior.drop_sd**2),
        noise_var=max(float(post.share @ post.misfit), 1e-12) / max(1.0, rounds - 2.0),
        noise_known=max(0.0, rounds - 2.0),
        log_knot=log_knot,
        knot_known=_known(knot_var, KNOT_SD**2),
        log_power=log_power,
        power_known=_known(power_var, POWER_SD**2),
    )


def _outlook(post: _Posterior, fall: Array, origin: float) -> Outlook:
    """The mixture over shapes as one t of the same mean and variance."""
    centre = post.start + post.drop * fall
    spread = 1.0 + post.var_start + 2 * fall * post.cov + fall**2 * post.var_drop
    freedom = 2 * post.alpha
    stretch = freedom / (freedom - 2)
    mean, var = _moments(post.share, centre, post.noise_var * spread * stretch)
    return Outlook(origin + mean, float(np.sqrt(var / stretch)), freedom)


def _moments(share: Array, mean: Array, var: Array | float = 0.0) -> tuple[float, float]:
    centre = float(share @ mean)
    return centre, float(share @ ((mean - centre) ** 2 + var))


def _known(var: float, prior_var: float) -> float:
    return min(1.0, max(0.0, 1.0 - var / prior_var))
