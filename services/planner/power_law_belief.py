"""Forecasts by a power law on log latency, with priors shared in a family of tasks.

`log y = start - drop * (1 - (1 + n / knot) ** -power) + noise`, for `y` the latency of a round's best
and `n` the trials before it. For given knot, power and noise this is linear regression in closed form;
a grid of these, weighted by evidence, gives the posterior exactly.
For a task without a valid result, the time follows from its FLOPs and its family's GFLOPS.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from mallorn.services.planner.learning_curve_points import MEMO, NOISE, Curve, curve_of, round_size_log_shift
from mallorn.services.planner.planner_values import Forecast, TaskView

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


TAIL: Final = 0.1  # probability outside each end of the interval
# Rounds miss a curve more often than they beat it, so around a known curve the lower side
# is this much narrower. Uncertainty of the curve itself, after few rounds, is symmetric.
LOWER_SIDE: Final = 0.5
LEAP_DROP: Final = 0.1  # share of the best latency that a leap (a gain off the curve) saves
LARGEST_LOG: Final = 200.0
SMALLEST: Final = 1e-12
_NODES: Final = 40


@dataclass(frozen=True, slots=True)
class StudentT:
    """Prediction per task: Student's t of log latency (us), and probabilities of events."""

    centre: Array
    scale: Array
    freedom: Array
    lower: Array  # width of the lower side, relative to the upper one
    best: Array  # the best latency so far
    valid: Array  # the probability that the round brings a valid result at all
    record: Array  # upper bound on the probability of a gain, from the drought
    leap: Array  # the probability of a leap


def forecasts(params: StudentT) -> list[Forecast]:
    """Return the forecasts of the tasks' next rounds, by numerical integration."""
    freedom, row = np.unique(np.round(params.freedom, 1), return_inverse=True)
    ends: Array = stdtrit(freedom[:, None], np.array([TAIL, 0.5, 1 - TAIL]))
    low, median, high = np.exp(_clipped(_log_us(params, ends[row]).T))
    reach = (params.best + np.log1p(-NOISE) - params.centre) / params.scale
    # Probability that a round on its curve gains more than noise.
    beats = stdtr(params.freedom, np.where(reach < 0, reach / params.lower, reach))
    factor = np.minimum(1.0, params.record / np.maximum(beats, SMALLEST))
    weights = _quadrature_rule()[1]
    quantiles = np.stack([_quantiles(float(nu)) for nu in freedom])
    # How far each quadrature node lies below the best, as a share of it: one row per task.
    log_us = _clipped(_log_us(params, quantiles[row]))
    drop = -np.expm1(np.minimum(log_us - params.best[:, None], 0.0))
    mean = params.valid * _mix_curve_and_leap(factor * (drop @ weights), LEAP_DROP, params.leap)
    square = params.valid * _mix_curve_and_leap(factor * (drop**2 @ weights), LEAP_DROP**2, params.leap)
    gain_probability = params.valid * _mix_curve_and_leap(np.minimum(beats, params.record), 1.0, params.leap)
    best = np.exp(params.best)
    sd = best * np.sqrt(np.maximum(square - mean**2, 0.0))
    columns = (median, low, high, best * mean, sd, gain_probability)
    return [Forecast(*row) for row in np.stack(columns, axis=1).tolist()]


def _log_us(params: StudentT, quantiles: Array) -> Array:
    """Return log latencies at quantiles of Student's t, whose lower side is narrower."""
    side = np.where(quantiles < 0, params.lower[:, None], 1.0)
    return np.asarray(params.centre[:, None] + params.scale[:, None] * side * quantiles)


def lower_side_width(rounds: int) -> float:
    """Return the width of the lower side relative to the upper one, after so many rounds."""
    return LOWER_SIDE + (1.0 - LOWER_SIDE) / max(1, rounds)


def _mix_curve_and_leap(along: Array, leapt: float, leap: Array) -> Array:
    """Return the mean of two cases: a round follows its curve, or gains more (a leap)."""
    return along + leap * (leapt - along)


def _clipped(values: Array) -> Array:
    return np.asarray(np.clip(values, -LARGEST_LOG, LARGEST_LOG))


@lru_cache(maxsize=1)
def _quadrature_rule() -> tuple[Array, Array]:
    """Return quadrature nodes and weights, dense in the lower tail, where gains are."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    unit = (nodes + 1) / 2
    return unit**3, weights / 2 * 3 * unit**2


@lru_cache(maxsize=4096)
def _quantiles(freedom: float) -> Array:
    return np.asarray(stdtrit(freedom, _quadrature_rule()[0]))


# A wider group's mean weighs as much as this many well-known tasks of the narrower group.
SHRINKAGE: Final = 2.0
SMALLEST_DROP_SD: Final = 0.4
DROP_STEP: Final = 0.1
NOISE_STEP: Final = 0.2
SHAPE_STEP: Final = 0.25


@dataclass(frozen=True, slots=True)
class SharedPriors:
    """Averages values over tasks of a family; `family` holds a family number per task."""

    family: NDArray[np.int64]
    count: int

    @classmethod
    def of(cls, names: Sequence[str]) -> "SharedPriors":
        numbers = {name: number for number, name in enumerate(sorted(set(names)))}
        return cls(np.array([numbers[name] for name in names], dtype=np.int64), len(numbers))

    def pool(
        self, value: Array, evidence: Array, reference: float, job_shrinkage: float = SHRINKAGE
    ) -> Array:
        """Return per task the mean over its family's other tasks, shrunk to the job's mean.

        `evidence` weights each task's value: 0 if its data say nothing about it, at most 1.
        """
        total, one_group = value * evidence, np.zeros(len(value), dtype=np.int64)
        job = _mean_of_other_tasks(total, evidence, reference, job_shrinkage, one_group, 1)
        return _mean_of_other_tasks(total, evidence, job, SHRINKAGE, self.family, self.count)


def _mean_of_other_tasks(
    total: Array, evidence: Array, prior: Array | float, strength: float, group: NDArray[np.int64], count: int
) -> Array:
    """Return per task the mean of its group's other tasks, shrunk to `prior`."""
    rest = np.bincount(group, total, count)[group] - total
    weight = np.maximum(np.bincount(group, evidence, count)[group] - evidence, 0.0)
    # Tiny weights would divide one rounding error by another.
    weight, rest = np.where(weight < 1e-9, 0.0, weight), np.where(weight < 1e-9, 0.0, rest)
    result: Array = (strength * np.asarray(prior) + rest) / np.maximum(strength + weight, 1e-12)
    return result if strength > 0 else np.where(weight > 0, result, prior)


def curve_priors(fits: Sequence[Fit | None], groups: SharedPriors) -> list[CurvePrior]:
    """Return the prior of each task's curve, computed from the other tasks' curves."""

    def pool(figure_of: Callable[[Fit], Figure], reference: float, power: int = 1) -> Array:
        figures = [Figure(0.0, 0.0) if fit is None else figure_of(fit) for fit in fits]
        values = np.array([figure.value**power for figure in figures])
        return groups.pool(values, np.array([figure.known for figure in figures]), reference)

    drop = pool(lambda fit: fit.drop, REFERENCE.drop)
    square = pool(lambda fit: fit.drop, REFERENCE.drop**2 + REFERENCE.drop_sd**2, power=2)
    drop_sd = np.sqrt(np.maximum(square - drop**2, SMALLEST_DROP_SD**2))
    noise = pool(lambda fit: fit.log_noise, REFERENCE.log_noise)
    knot = pool(lambda fit: fit.log_knot, REFERENCE.log_knot)
    power = pool(lambda fit: fit.log_power, REFERENCE.log_power)
    columns = (
        _stepped(drop, DROP_STEP),
        np.maximum(_stepped(drop_sd, DROP_STEP), DROP_STEP),
        _stepped(noise, NOISE_STEP),
        _stepped(knot, SHAPE_STEP),
        _stepped(power, SHAPE_STEP),
    )
    return [CurvePrior(*row) for row in np.stack(columns, axis=1).tolist()]


def _stepped(values: Array, step: float) -> Array:
    return np.asarray(np.round(values / step) * step)


# Below this the FLOPs do not determine the time: the task moves memory.
FEW_FLOPS: Final = 1e4
ASSUMED_GFLOPS: Final = 50.0
ASSUMED_SD: Final = 1.5
SMALLEST_SD: Final = 0.3
# Assumed log distance of a memory-moving task below the job's average, if no other is known.
MOVER_OFFSET: Final = -2.0
MOVER_US: Final = 10.0
# How many times slower than a first round's best a default schedule is assumed to be.
UNTUNED_FACTOR: Final = 4.0
LEVEL_FREEDOM: Final = 5.0
# Prior number of leaps.
LEAPS: Final = 0.25


def predict_first_latencies(tasks: Sequence[TaskView], groups: SharedPriors) -> tuple[Array, Array]:
    """Predict each task's first log latency (mean, sd) from other tasks' results."""
    computes = np.array([task.flops >= FEW_FLOPS for task in tasks])
    has_time = np.array([float(task.best_us is not None) for task in tasks])
    log_us = np.array([log(task.best_us) if task.best_us else 0.0 for task in tasks])
    work = np.array([log(task.flops) if task.flops >= FEW_FLOPS else 0.0 for task in tasks])
    rate = log_us - work
    mean, sd = _pool_mean_and_sd(rate, has_time * computes, log(1e-3 / ASSUMED_GFLOPS), groups)
    mover = float(log_us[has_time > 0].mean()) + MOVER_OFFSET if has_time.any() else log(MOVER_US)
    mover_mean, mover_sd = _pool_mean_and_sd(log_us, has_time * ~computes, mover, groups)
    return np.where(computes, work + mean, mover_mean), np.where(computes, sd, mover_sd)


def _pool_mean_and_sd(
    value: Array, evidence: Array, reference: float, groups: SharedPriors
) -> tuple[Array, Array]:
    # With any known value the reference is dropped: choices must not depend on the scale.
    mean = groups.pool(value, evidence, reference, job_shrinkage=0.0)
    squared_error = np.where(evidence > 0, (value - mean) ** 2, 0.0)
    variance = groups.pool(squared_error, evidence, ASSUMED_SD**2)
    return mean, np.maximum(np.sqrt(np.maximum(variance, 0.0)), SMALLEST_SD)


class PowerLaw:
    """Forecasts tasks' next rounds: the average over a grid of power laws, weighted by fit.

    Equal tasks and sizes give equal forecasts, and the order of `tasks` is irrelevant. Any
    number of known rounds is allowed, also none; tasks of a family inform each other.
    """

    def forecast(self, tasks: Sequence[TaskView], size: int) -> list[Forecast]:
        """Return the forecast of each task's next round of `size` candidates."""
        if not tasks:
            return []
        # A fixed order, because sums depend on it in the last digit.
        order = sorted(range(len(tasks)), key=lambda i: (tasks[i].index, tasks[i].id))
        in_order = forecasts(_predict([tasks[i] for i in order], size))
        by_position = dict(zip(order, in_order, strict=True))
        return [by_position[i] for i in range(len(tasks))]


def _predict(tasks: Sequence[TaskView], size: int) -> StudentT:
    curves = [curve_of(task.points, task.known_us) for task in tasks]
    groups = SharedPriors.of([task.family for task in tasks])
    own_fits = [None if curve is None else fit(curve, REFERENCE) for curve in curves]
    priors = curve_priors(own_fits, groups)
    fits = [None if curve is None else fit(curve, prior) for curve, prior in zip(curves, priors, strict=True)]
    mean, sd = predict_first_latencies(tasks, groups)
    guesses = [NextBest(centre, scale, LEVEL_FREEDOM) for centre, scale in zip(mean, sd, strict=True)]
    looks = [guess if fit is None else fit.outlook for guess, fit in zip(guesses, fits, strict=True)]
    untuned = [look.centre + log(UNTUNED_FACTOR) for look in looks]
    best = [
        us if task.best_us is None else log(task.best_us) for task, us in zip(tasks, untuned, strict=True)
    ]
    valid = []
    for task in tasks:
        has_known = task.known_us is not None
        successes = sum(point.best_us is not None for point in task.points) + has_known
        valid.append((successes + 1) / (len(task.points) + has_known + 1))
    return StudentT(
        centre=_column([look.centre for look in looks]) - round_size_log_shift(size),
        scale=_column([look.scale for look in looks]),
        freedom=_column([look.freedom for look in looks]),
        lower=_column([lower_side_width(len(curve.log_us) if curve else 0) for curve in curves]),
        best=_column(best),
        valid=_column(valid),
        # Probability that the next of exchangeable rounds is the best since the last gain.
        record=_column([1.0 if curve is None else 1.0 / (1.0 + curve.drought) for curve in curves]),
        # It falls with the known rounds, and keeps a quiet task alive for a while.
        leap=_column([0.0 if curve is None else LEAPS / (1 + len(curve.log_us)) for curve in curves]),
    )


def _column(values: Sequence[float]) -> Array:
    return np.array(values, dtype=np.float64)
