"""LightGBM's boosted trees: by regression, and by ranking."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import lightgbm
import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import FAILED_LABEL, CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import (
    UNCALIBRATED,
    ScoreCalibration,
    Weights,
    bootstrap_counts,
    fit_calibration,
    replace_nonfinite,
    untrained_prediction,
    weight_fast_rows,
)
from mallorn.costmodels.serialization import as_array, pack, unpack, unreadable
from mallorn.costmodels.views import check_rows

MEMBERS = 4
TREES = 40
GRADES = 31
Settings = Mapping[str, float | str | list[int]]  # LightGBM's own parameters
SHARED: Settings = {
    "num_leaves": 31,
    "learning_rate": 0.15,
    "feature_fraction_bynode": 0.5,
    "min_data_in_leaf": 3,
    "min_sum_hessian_in_leaf": 1e-3,  # leaves with only rounding errors cannot be split
    "max_bin": 63,
    "min_data_in_bin": 1,
    "feature_pre_filter": False,
    "deterministic": True,
    "force_col_wise": True,
    "num_threads": 1,  # spinning OpenMP threads slow down a busy host
    "verbosity": -1,
}


class LightGBM(CostModel):
    """Boosters of leaf-wise trees with squared error, each fit on a bootstrap of the rows."""

    KIND: ClassVar = "lightgbm"
    OBJECTIVE: ClassVar[Settings] = {"objective": "regression"}
    RANKS: ClassVar = False

    def __init__(self, parameters: Settings | None = None, trees: int = TREES) -> None:
        """Create an untrained model; `parameters` override the default LightGBM parameters."""
        self._parameters, self._trees = {**SHARED, **self.OBJECTIVE, **(parameters or {})}, trees
        self._forget()

    def _forget(self) -> None:
        self._boosters: list[lightgbm.Booster] = []
        self._calibration = UNCALIBRATED

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._forget()
        if not len(labels):
            return
        order = np.argsort(groups, kind="stable")
        rows, truth = replace_nonfinite(features)[order], labels[order]
        data = self._dataset(rows, truth, np.unique(groups, return_counts=True)[1])
        rng = np.random.default_rng(seed)
        bootstraps, weight = bootstrap_counts(rng, len(truth), MEMBERS), weight_fast_rows(truth)
        for counts in bootstraps:
            data.set_weight(counts * weight)
            parameters = {**self._parameters, "seed": int(rng.integers(2**31))}
            self._boosters.append(lightgbm.train(parameters, data, num_boost_round=self._trees))
        self._calibration = fit_calibration(self._raw(rows), truth, bootstraps == 0, has_curve=self.RANKS)

    def _dataset(self, rows: Matrix, labels: Vector, sizes: NDArray[np.intp]) -> lightgbm.Dataset:
        del sizes  # labels are relative to their group's best already
        return lightgbm.Dataset(rows, labels, params=dict(SHARED), free_raw_data=False)

    def _raw(self, rows: Matrix) -> Weights:
        return np.stack([booster.predict(rows, num_threads=1) for booster in self._boosters])

    def predict(self, features: Matrix) -> Prediction:
        if not self._boosters:
            return untrained_prediction(len(features))
        if not len(features):
            return self._calibration(np.empty((MEMBERS, 0)))
        return self._calibration(self._raw(replace_nonfinite(features)))

    def save(self) -> bytes:
        texts = [as_array(booster.model_to_string().encode()) for booster in self._boosters]
        arrays: dict[str, NDArray[Any]] = {f"{index}": text for index, text in enumerate(texts)}
        numbers = {**self._calibration.numbers, "members": len(texts)}
        return pack(self.KIND, numbers, {**arrays, **self._calibration.arrays()})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        model = cls()
        model._calibration = ScoreCalibration.from_stored(numbers, arrays)
        try:
            texts = [arrays[f"{index}"].tobytes().decode() for index in range(numbers["members"])]
            model._boosters = [lightgbm.Booster(model_str=text) for text in texts]
        except lightgbm.basic.LightGBMError as error:
            raise unreadable(cls.KIND, str(error)) from error
        return model


class LightGBMRank(LightGBM):
    """LightGBM with LambdaRank, which gives pairs near the top of their group a larger weight.

    Its raw scores only rank; a monotone curve fit on left-out rows maps them to labels.
    """

    KIND: ClassVar = "lightgbm-rank"
    OBJECTIVE: ClassVar[Settings] = {
        "objective": "lambdarank",
        "label_gain": list(range(GRADES + 1)),
        "lambdarank_truncation_level": 60,
    }
    RANKS: ClassVar = True

    def _dataset(self, rows: Matrix, labels: Vector, sizes: NDArray[np.intp]) -> lightgbm.Dataset:
        grades = np.rint(GRADES * (1 - labels / FAILED_LABEL))
        return lightgbm.Dataset(rows, grades, group=sizes, params=dict(SHARED), free_raw_data=False)
