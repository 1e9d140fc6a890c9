"""Posterior of a learning curve: log latency of a round's best against the trials before it.

`log y = start - drop * (1 - (1 + n / knot) ** -power) + noise`. For given knot, power and noise this is
linear regression in closed form; a grid of these, weighted by evidence, gives the posterior exactly.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.services.planner.learning_curve_points import MEMO, Curve

Array = NDArray[np.float64]

# A round counts half as much this many rounds later, because the search changes.
HALF_LIFE_ROUNDS: Final = 5.0
START_SD: Final = 1.0
KNOT_SD: Final = 1.2  # sd of the logarithm, like the next two
POWER_SD: Final = 0.6
NOISE_SD: Final = 0.9
LEAST_FREEDOM, MOST_FREEDOM = 3.0, 60.0  # bounds of Student's t degrees of freedom

_LOG_KNOT, _LOG_POWER = (
    axis.reshape(-1, 1) for axis in np.meshgrid(np.linspace(1.5, 7.5, 9), np.linspace(-1.6, 1.2, 8))
)
_KNOT, _POWER = np.exp(_LOG_KNOT), np.exp(_LOG_POWER)
_LOG_NOISE: Final[Array] = np.linspace(np.log(0.003), np.log(1.5), 12)
_NOISE: Final[Array] = np.exp(_LOG_NOISE)


@dataclass(frozen=True, slots=True)
class CurvePrior:
    """Prior of a task's learning curve; latency, knot and power are logarithms."""

    drop: float = 0.5  # of log latency, from the first random round to the end
    drop_sd: float = 0.9
    log_noise: float = -2.5  # spread of a round's best around the curve
    log_knot: float = 3.5
    log_power: float = -0.2


REFERENCE: Final = CurvePrior()


@dataclass(frozen=True, slots=True)
class NextBest:
    """Prediction (Student's t) of the log latency of the next round's best candidate."""

    centre: float
    scale: float
    freedom: float


@dataclass(frozen=True, slots=True)
class Figure:
    """A fitted parameter; `known` is the share of its prior variance that data removed."""

    value: float
    known: float


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted parameters of a task's curve, and the prediction of its next round."""

    outlook: NextBest
    drop: Figure
    log_noise: Figure
    log_knot: Figure
    log_power: Figure


@lru_cache(maxsize=2 * MEMO)
def fit(curve: Curve, prior: CurvePrior) -> Fit:
    """Return the exact posterior of a curve, and the prediction of its next round."""
    weight = 0.5 ** (np.arange(len(curve.log_us) - 1, -1, -1) / HALF_LIFE_ROUNDS)
    level = np.array(curve.log_us) - curve.log_us[0]
    posterior = _posterior(weight, level, _power_law_drop(np.array(curve.before)), prior)
    next_fall = _power_law_drop(np.array([curve.ahead]))
    return Fit(
        outlook=_predict_next_best(posterior, next_fall, curve.log_us[0]),
        drop=_summarise_parameter(prior.drop_sd**2, posterior.share, posterior.drop, posterior.var_drop),
        log_noise=_summarise_parameter(NOISE_SD**2, posterior.share, _LOG_NOISE),
        log_knot=_summarise_parameter(KNOT_SD**2, posterior.share, _LOG_KNOT),
        log_power=_summarise_parameter(POWER_SD**2, posterior.share, _LOG_POWER),
    )


def _power_law_drop(trials: Array) -> Array:
    return np.asarray((1.0 + trials / _KNOT) ** -_POWER - 1.0)


@dataclass(frozen=True, slots=True)
class _Posterior:
    """Normal posteriors of (start, drop): one row per curve shape, one column per noise."""

    share: Array  # weight of each normal in the mixture
    start: Array
    drop: Array
    var_start: Array
    var_drop: Array
    cov: Array


def _posterior(weight: Array, level: Array, fall: Array, prior: CurvePrior) -> _Posterior:
    precision, prior_precision = _NOISE**-2.0, prior.drop_sd**-2.0
    a = weight.sum() * precision + START_SD**-2.0
    b = (fall @ weight)[:, None] * precision
    d = (fall**2 @ weight)[:, None] * precision + prior_precision
    right_start = (level @ weight) * precision
    right_drop = (fall @ (weight * level))[:, None] * precision + prior_precision * prior.drop
    determinant = a * d - b * b
    start = (d * right_start - b * right_drop) / determinant
    drop = (a * right_drop - b * right_start) / determinant
    misfit = (level**2 @ weight) * precision + prior_precision * prior.drop**2
    misfit = misfit - start * right_start - drop * right_drop
    knot = (_LOG_KNOT - prior.log_knot) / KNOT_SD
    power = (_LOG_POWER - prior.log_power) / POWER_SD
    noise = (_LOG_NOISE - prior.log_noise) / NOISE_SD
    log_prior = -(knot**2 + power**2 + noise**2) / 2
    evidence = log_prior - np.log(determinant) / 2 - weight.sum() * _LOG_NOISE - misfit / 2
    share = np.exp(evidence - evidence.max())
    return _Posterior(share / share.sum(), start, drop, d / determinant, a / determinant, -b / determinant)


def _summarise_parameter(prior_var: float, share: Array, mean: Array, var: Array | float = 0.0) -> Figure:
    centre, spread = _moments(share, mean, var)
    return Figure(centre, min(1.0, max(0.0, 1.0 - spread / prior_var)))


def _predict_next_best(posterior: _Posterior, fall: Array, origin: float) -> NextBest:
    """Approximate a mixture of predictions by one Student's t of equal centre and spread."""
    spread = _NOISE**2 + posterior.var_start + 2 * fall * posterior.cov
    spread = spread + fall**2 * posterior.var_drop
    mean, centres_var = _moments(posterior.share, posterior.start + posterior.drop * fall)
    log_var, log_var_var = _moments(posterior.share, np.log(spread))
    # Inverse gamma with this variance of its logarithm (first terms of the polygamma series).
    alpha = (1 + np.sqrt(1 + 2 * log_var_var)) / (2 * max(log_var_var, 1e-3))
    freedom = float(np.clip(2 * alpha, LEAST_FREEDOM, MOST_FREEDOM))
    scale_var = np.exp(log_var - 1 / freedom - 1 / (3 * freedom**2)) + centres_var
    return NextBest(origin + mean, float(np.sqrt(scale_var)), freedom)


def _moments(share: Array, mean: Array, var: Array | float = 0.0) -> tuple[float, float]:
    centre = float((share * mean).sum())
    return centre, float((share * ((mean - centre) ** 2 + var)).sum())
