"""Predicts build times from those measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from workers.search.base import Trial
from workers.search.space import Matrix, Space

Column = NDArray[np.float64]

FEWEST: Final = 16
KEPT: Final = 256
RIDGE: Final = 1.0


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
