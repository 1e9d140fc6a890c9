"""Boosted trees that correct a model of the time of CUDA kernels."""

from typing import ClassVar, Final

import numpy as np

from mallorn.costmodels.base import Column, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import replace_nonfinite, weight_fast_rows
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.views import KERNELS, check_rows, check_width
from mallorn.costmodels.xgboost_models import XGBoost

MODELLED: Final = -1  # column of log2(modelled time / time at the machine's peaks)


class KernelTime(XGBoost):
    """Adds boosters to the modelled time of the view `kernels`. They learn by how much it
    is wrong within a task, so that rows of one task help to order those of another, and
    rank by the modelled time alone before there are measurements."""

    view: ClassVar[str] = KERNELS.name
    orders_unfitted: ClassVar[bool] = True

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        check_width(features, self.view)
        error = labels - _modelled_scores(features)
        typical = float(error.mean()) if len(error) else 0.0
        for rows in iterate_group_rows(groups):
            error[rows] += typical - error[rows].mean()
        self.fit_boosters(features, error.astype(np.float32), weight_fast_rows(labels), seed)

    def predict(self, features: Matrix) -> Prediction:
        check_width(features, self.view)
        correction = super().predict(features)
        score = _modelled_scores(features) + correction.mean
        return Prediction(score.astype(np.float32), correction.std)


def _modelled_scores(features: Matrix) -> Column:
    """Return log(time at the machine's peaks / modelled time) of each row."""
    return np.asarray(-np.log(2.0) * replace_nonfinite(features)[:, MODELLED], dtype=np.float64)
