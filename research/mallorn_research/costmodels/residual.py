"""Boosters that predict a base model's error on local rows (TenSet's plus mode)."""

from typing import ClassVar, Final

import numpy as np

from mallorn.core.values.machine import Machine
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.base import Column, CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import weight_fast_rows
from mallorn.costmodels.serialization import Arrays, Numbers
from mallorn.costmodels.views import check_rows
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.booster_arrays import as_arrays, from_arrays
from mallorn_research.costmodels.transfer_model_base import TransferModel

TRUSTED_ROWS: Final = 16.0  # weight of the prior slope 1, in rows


class Residual(TransferModel):
    """The base model's score times a trust factor, plus boosters for the remaining error.

    The base alone ranks the first round; later rows correct it. The default is `Draft`.
    """

    KIND: ClassVar[str] = "residual"

    def __init__(self, base: CostModel | None = None) -> None:
        super().__init__(base or Draft())
        self._error, self._trust = XGBoost(), 1.0

    @classmethod
    def made_for(cls, machine: Machine | None) -> "Residual":
        return cls(Draft(machine))

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._error, self._trust = XGBoost(), 1.0
        if not len(labels):
            return
        weight, guess = weight_fast_rows(labels), self.base.predict(features).mean
        self._trust = fit_trust_factor(guess, labels, weight)
        residuals = (labels - self._trust * guess).astype(np.float32)
        self._error.fit_boosters(features, residuals, weight, seed)

    def predict(self, features: Matrix) -> Prediction:
        guess = self.base.predict(features)
        if not self._error.boosters:
            return guess
        local = self._error.predict(features)
        return Prediction(np.float32(self._trust) * guess.mean + local.mean, local.std)

    def _local_state(self) -> tuple[Numbers, Arrays]:
        boosters, noise = self._error.boosters, self._error.noise
        numbers = {"trust": self._trust, "noise": noise, "members": len(boosters)}
        return numbers, as_arrays(boosters)

    def _restore_local_state(self, numbers: Numbers, arrays: Arrays) -> None:
        self._trust, self._error.noise = numbers["trust"], numbers["noise"]
        self._error.boosters = from_arrays(arrays, numbers["members"], self.KIND)


def fit_trust_factor(guess: Vector, labels: Vector, weight: Column) -> float:
    """Return the slope of labels over base scores, at least 0; few rows keep it near 1."""
    (variance, covariance), _ = np.cov(
        guess.astype(np.float64), labels.astype(np.float64), aweights=weight, ddof=0
    )
    if not variance:
        return 1.0
    slope = covariance / variance
    return float(max(0.0, (len(labels) * slope + TRUSTED_ROWS) / (len(labels) + TRUSTED_ROWS)))
