"""Boosters that predict a base model's error on local rows (TenSet's plus mode)."""

from typing import ClassVar, Final

import numpy as np
import xgboost

from mallorn.core.values.machine import Machine
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.base import Column, CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import (
    UNKNOWN,
    bootstrap_counts,
    combine_member_scores,
    replace_nonfinite,
    unexplained_error,
    weight_fast_rows,
)
from mallorn.costmodels.serialization import Arrays, Numbers
from mallorn.costmodels.transfer_model_base import TransferModel
from mallorn.costmodels.views import check_rows
from mallorn.costmodels.xgboost_models import (
    MEMBERS,
    as_arrays,
    from_arrays,
    make_quantile_matrix,
    member_scores,
    train_booster,
)

TRUSTED_ROWS: Final = 16.0  # weight of the prior slope 1, in rows


class Residual(TransferModel):
    """The base model's score times a trust factor, plus boosters for the remaining error.

    The base alone ranks the first round; later rows correct it. The default is `Draft`.
    """

    KIND: ClassVar[str] = "residual"

    def __init__(self, base: CostModel | None = None) -> None:
        super().__init__(base or Draft())
        self._boosters: list[xgboost.Booster] = []
        self._trust, self._noise = 1.0, UNKNOWN

    @classmethod
    def made_for(cls, machine: Machine | None) -> "Residual":
        return cls(Draft(machine))

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._boosters, self._trust, self._noise = [], 1.0, UNKNOWN
        if not len(labels):
            return
        rng, weight, rows = np.random.default_rng(seed), weight_fast_rows(labels), replace_nonfinite(features)
        guess = self.base.predict(features).mean
        self._trust = fit_trust_factor(guess, labels, weight)
        residuals = (labels - self._trust * guess).astype(np.float32)
        data, bootstraps = make_quantile_matrix(rows, residuals), bootstrap_counts(rng, len(labels), MEMBERS)
        self._boosters = [train_booster(data, counts * weight, rng) for counts in bootstraps]
        scores = member_scores(self._boosters, rows)
        self._noise = unexplained_error(scores, residuals, weight * (bootstraps == 0))

    def predict(self, features: Matrix) -> Prediction:
        guess = self.base.predict(features)
        if not self._boosters:
            return guess
        local = combine_member_scores(member_scores(self._boosters, replace_nonfinite(features)), self._noise)
        return Prediction(np.float32(self._trust) * guess.mean + local.mean, local.std)

    def _local_state(self) -> tuple[Numbers, Arrays]:
        numbers = {"trust": self._trust, "noise": self._noise, "members": len(self._boosters)}
        return numbers, as_arrays(self._boosters)

    def _restore_local_state(self, numbers: Numbers, arrays: Arrays) -> None:
        self._trust, self._noise = numbers["trust"], numbers["noise"]
        self._boosters = from_arrays(arrays, numbers["members"], self.KIND)


def fit_trust_factor(guess: Vector, labels: Vector, weight: Column) -> float:
    """Return the slope of labels over base scores, at least 0; few rows keep it near 1."""
    (variance, covariance), _ = np.cov(
        guess.astype(np.float64), labels.astype(np.float64), aweights=weight, ddof=0
    )
    if not variance:
        return 1.0
    slope = covariance / variance
    return float(max(0.0, (len(labels) * slope + TRUSTED_ROWS) / (len(labels) + TRUSTED_ROWS)))
