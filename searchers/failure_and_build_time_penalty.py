"""Penalties for candidates that are likely to fail or, by the build times measured, slow to build."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from costmodels.base import Column, Prediction
from searchers.base import Trial
from searchers.batch_sampler import ScoredPool
from searchers.predict_failures import learn_feasibility
from searchers.space import Matrix, Space

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
