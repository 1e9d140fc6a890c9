"""Penalties for candidates that are likely to fail or, by the build times measured, slow to build."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from costmodels.base import Column, Prediction
from costmodels.labels import UNINFORMATIVE
from mallorn.core.outcomes import Outcome
from searchers.base import Trial
from searchers.batch_sampler import ScoredPool
from searchers.space import Matrix, Space

if TYPE_CHECKING:
    import xgboost

# With fewer failures nothing is learned. Only this many of the newest rows of each kind count.
FEWEST_FAILURES: Final = 4
KEPT_FAILURES: Final = 256
TREES: Final = 30
# Nothing is certain to fail, so that every region stays reachable.
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


@dataclass(frozen=True, slots=True)
class Feasibility:
    """A model of the probability to fail."""

    booster: "xgboost.Booster"

    def failing(self, features: Matrix) -> Column:
        """The probability that each row fails; always below one."""
        if not len(features):
            return np.zeros(0)
        answer = self.booster.inplace_predict(np.asarray(features, dtype=np.float32))
        return np.minimum(np.asarray(answer, dtype=np.float64), CERTAIN)


def learn_feasibility(space: Space, history: Sequence[Trial]) -> Feasibility | None:
    """A model of the history; None while there are few failures, or only failures."""
    told = [trial for trial in history if trial.outcome not in UNINFORMATIVE]
    bad = [trial for trial in told if trial.outcome is not Outcome.OK]
    good = [trial for trial in told if trial.outcome is Outcome.OK]
    if len(bad) < FEWEST_FAILURES or len(good) < FEWEST_FAILURES:
        return None
    shares = len(bad) / min(len(bad), KEPT_FAILURES), len(good) / min(len(good), KEPT_FAILURES)
    return _failure_model(
        space, (*bad[-KEPT_FAILURES:], *good[-KEPT_FAILURES:]), shares, len(bad) / len(told)
    )


@lru_cache(maxsize=1)  # the arms of a portfolio ask for the same, one after the other
def _failure_model(
    space: Space, kept: tuple[Trial, ...], shares: tuple[float, float], rate: float
) -> Feasibility:
    import xgboost  # a second of every worker's start

    failed = np.array([trial.outcome is not Outcome.OK for trial in kept], dtype=np.float32)
    features = space.features([trial.candidate for trial in kept])
    data = xgboost.QuantileDMatrix(
        features, failed, weight=np.where(failed > 0, *shares), max_bin=PARAMETERS["max_bin"], nthread=1
    )
    return Feasibility(xgboost.train({**PARAMETERS, "base_score": rate}, data, num_boost_round=TREES))


FEWEST: Final = 16
KEPT: Final = 256
RIDGE: Final = 1.0
# Builds up to this many times the median cost nothing; beyond, each doubling costs PRICE of score.
PATIENT: Final = 3.0
PRICE: Final = 0.3
# A candidate stays in the pool with the probability that this many like it would all work.
CAUTION: Final = 2


@dataclass(frozen=True, slots=True)
class BuildTimes:
    """Ridge regression on the log of build times."""

    centre: Column
    scale: Column
    weights: Column
    usual: float  # log of the median build time
    highest: float  # log of the longest build seen: nothing is predicted beyond twice that

    def excess(self, features: Matrix) -> Column:
        """The predicted log of each candidate's build time over the median."""
        logs = (np.asarray(features, dtype=np.float64) - self.centre) / self.scale @ self.weights
        return np.asarray(np.minimum(logs, self.highest - self.usual + np.log(2.0)), dtype=np.float64)


def learn_build_times(space: Space, history: Sequence[Trial]) -> BuildTimes | None:
    """A model of the newest builds; None while there are few."""
    built = [trial for trial in history if trial.build_ms][-KEPT:]
    return None if len(built) < FEWEST else _fitted(space, tuple(built))


@lru_cache(maxsize=1)  # the arms of a portfolio ask for the same one after another
def _fitted(space: Space, built: tuple[Trial, ...]) -> BuildTimes:
    logs = np.log([trial.build_ms for trial in built if trial.build_ms])
    features = np.asarray(space.features([trial.candidate for trial in built]), dtype=np.float64)
    centre, deviation = features.mean(axis=0), features.std(axis=0)
    scale = np.where(deviation > 1e-6, deviation, np.inf)
    points = (features - centre) / scale
    usual = float(np.median(logs))
    gram = points.T @ points + RIDGE * np.eye(points.shape[1])
    weights = np.linalg.solve(gram, points.T @ (logs - usual))
    return BuildTimes(centre, scale, weights, usual, float(logs.max()))


def penalise_failures(
    space: Space, history: Sequence[Trial], pool: ScoredPool, rng: np.random.Generator
) -> ScoredPool:
    """The pool, thinned where candidates are likely to fail, with scores lowered for long builds.

    Nothing is excluded: some candidates stay even in a region that was judged wrongly, so it is tried again.
    Failures do not change scores: ranked by safety, a search would find the safest and not the fastest.
    """
    if not len(pool):
        return pool
    mean = pool.prediction.mean.astype(np.float64)
    if (times := learn_build_times(space, history)) is not None:
        mean -= PRICE * np.maximum(0.0, times.excess(pool.features) - np.log(PATIENT)) / np.log(2.0)
    priced = replace(pool, prediction=Prediction(mean.astype(np.float32), pool.prediction.std))
    if (feasibility := learn_feasibility(space, history)) is None:
        return priced
    working = 1.0 - feasibility.failing(pool.features)
    return priced.only(np.flatnonzero(rng.random(len(pool)) < working**CAUTION))
