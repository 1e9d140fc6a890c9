"""Predicts which candidates fail to build or to run, from a task's failures."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from costmodels.base import Column
from costmodels.labels import UNINFORMATIVE
from mallorn.core.outcomes import Outcome
from searchers.base import Trial
from searchers.space import Matrix, Space

if TYPE_CHECKING:
    import xgboost

# With fewer failures nothing is learned. Only this many of the newest rows of each kind count.
FEWEST: Final = 4
KEPT: Final = 256
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
    if len(bad) < FEWEST or len(good) < FEWEST:
        return None
    shares = len(bad) / min(len(bad), KEPT), len(good) / min(len(good), KEPT)
    return _fitted(space, (*bad[-KEPT:], *good[-KEPT:]), shares, len(bad) / len(told))


@lru_cache(maxsize=1)  # the arms of a portfolio ask for the same, one after the other
def _fitted(space: Space, kept: tuple[Trial, ...], shares: tuple[float, float], rate: float) -> Feasibility:
    import xgboost  # a second of every worker's start

    failed = np.array([trial.outcome is not Outcome.OK for trial in kept], dtype=np.float32)
    features = space.features([trial.candidate for trial in kept])
    data = xgboost.QuantileDMatrix(
        features, failed, weight=np.where(failed > 0, *shares), max_bin=PARAMETERS["max_bin"], nthread=1
    )
    return Feasibility(xgboost.train({**PARAMETERS, "base_score": rate}, data, num_boost_round=TREES))
