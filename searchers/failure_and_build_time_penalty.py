"""Penalties for candidates that are likely to fail or to take long to build."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from mallorn.core.outcomes import Outcome
from mallorn.costmodels.base import Column, Prediction
from mallorn.costmodels.labels import UNINFORMATIVE
from mallorn.searchers.base import Trial
from mallorn.searchers.sampler import ScoredPool
from mallorn.searchers.space import Matrix, Space

if TYPE_CHECKING:
    import xgboost

# Failures and successes that a model needs, and newest rows of each kind that it uses.
FEWEST_FAILURES: Final = 4
KEPT_FAILURES: Final = 256
TREES: Final = 30
# Largest probability of failure, so that every region of the space stays reachable.
CERTAIN: Final = 0.9
PARAMETERS: Final = {
    "objective": "binary:logistic",
    "tree_method": "hist",
    "max_depth": 4,
    "eta": 0.3,
    "max_bin": 64,
    "min_child_weight": 0.5,
    "nthread": 1,
    "seed": 0,
    "verbosity": 0,
}


def failure_probability(feasibility: "xgboost.Booster", features: Matrix) -> Column:
    """Return each row's predicted probability of failure, at most CERTAIN."""
    answer = feasibility.inplace_predict(np.asarray(features, dtype=np.float32))
    return np.minimum(np.asarray(answer, dtype=np.float64), CERTAIN)


def learn_feasibility(space: Space, history: Sequence[Trial]) -> "xgboost.Booster | None":
    """Fit a model of failures; None if the history has too few of them or too few successes."""
    trials = [trial for trial in history if trial.outcome not in UNINFORMATIVE]
    bad = [trial for trial in trials if trial.outcome is not Outcome.OK]
    good = [trial for trial in trials if trial.outcome is Outcome.OK]
    if len(bad) < FEWEST_FAILURES or len(good) < FEWEST_FAILURES:
        return None
    shares = len(bad) / min(len(bad), KEPT_FAILURES), len(good) / min(len(good), KEPT_FAILURES)
    return _failure_model(
        space, (*bad[-KEPT_FAILURES:], *good[-KEPT_FAILURES:]), shares, len(bad) / len(trials)
    )


@lru_cache(maxsize=1)  # the searchers of a portfolio call it with the same arguments
def _failure_model(
    space: Space, trials: tuple[Trial, ...], shares: tuple[float, float], rate: float
) -> "xgboost.Booster":
    import xgboost  # here, because importing it takes a second

    failed = np.array([trial.outcome is not Outcome.OK for trial in trials], dtype=np.float32)
    features = space.features([trial.candidate for trial in trials])
    data = xgboost.QuantileDMatrix(
        features, failed, weight=np.where(failed > 0, *shares), max_bin=PARAMETERS["max_bin"], nthread=1
    )
    return xgboost.train({**PARAMETERS, "base_score": rate}, data, num_boost_round=TREES)


FEWEST: Final = 16
KEPT: Final = 256
RIDGE: Final = 1.0
# Builds longer than PATIENT times the median lose PRICE (score units) per doubling.
PATIENT: Final = 3.0
PRICE: Final = 0.3
# A candidate stays in the pool with its probability of success to the power of this number.
CAUTION: Final = 2


@dataclass(frozen=True, slots=True)
class BuildTimes:
    """A linear model (ridge regression) of log(build time / median build time)."""

    slopes: Column
    offset: float
    highest: float  # of the builds that were measured; predictions are at most twice as long

    def predict_log_excess(self, features: Matrix) -> Column:
        logs = features @ self.slopes - self.offset
        return np.asarray(np.minimum(logs, self.highest + np.log(2.0)), dtype=np.float64)


def learn_build_times(space: Space, history: Sequence[Trial]) -> BuildTimes | None:
    """Fit a model to the newest builds; None if there are too few."""
    builds = [trial for trial in history if trial.build_ms][-KEPT:]
    return None if len(builds) < FEWEST else _fitted(space, tuple(builds))


@lru_cache(maxsize=1)  # the searchers of a portfolio call it with the same arguments
def _fitted(space: Space, builds: tuple[Trial, ...]) -> BuildTimes:
    logs = np.log([trial.build_ms for trial in builds if trial.build_ms])
    features = np.asarray(space.features([trial.candidate for trial in builds]), dtype=np.float64)
    centre, deviation = features.mean(axis=0), features.std(axis=0)
    scale = np.where(deviation > 1e-6, deviation, np.inf)
    points = (features - centre) / scale
    usual = float(np.median(logs))
    gram = points.T @ points + RIDGE * np.eye(points.shape[1])
    slopes = np.linalg.solve(gram, points.T @ (logs - usual)) / scale
    return BuildTimes(slopes, float(centre @ slopes), float(logs.max()) - usual)


def penalise_failures(
    space: Space, history: Sequence[Trial], pool: ScoredPool, rng: np.random.Generator
) -> ScoredPool:
    """Return the pool without some likely failures, and with lower scores for long builds.

    Every candidate has a chance to stay, so that regions that were judged wrongly are tried
    again. The risk of failure does not change scores: otherwise a search would find the
    safest candidates instead of the fastest.
    """
    if not len(pool):
        return pool
    mean = pool.prediction.mean.astype(np.float64)
    if (times := learn_build_times(space, history)) is not None:
        mean -= (
            PRICE * np.maximum(0.0, times.predict_log_excess(pool.features) - np.log(PATIENT)) / np.log(2.0)
        )
    priced = replace(pool, prediction=Prediction(mean.astype(np.float32), pool.prediction.std))
    if (feasibility := learn_feasibility(space, history)) is None:
        return priced
    success = 1.0 - failure_probability(feasibility, pool.features)
    return priced.select_lines(np.flatnonzero(rng.random(len(pool)) < success**CAUTION))
