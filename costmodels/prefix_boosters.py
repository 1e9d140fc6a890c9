"""Base class of models of partial schedules, with boosters on full schedules and prefixes."""

from typing import ClassVar, Self

import xgboost

from costmodels.base import CostModel, Matrix, Prediction
from costmodels.serialization import as_array, pack, unpack
from costmodels.xgb import XGBoost
from costmodels.xgboost_ensemble import as_arrays, from_arrays


class PrefixBoosters(CostModel):
    """Scores full schedules like `xgboost`; subclasses define the boosters on prefixes."""

    KIND: ClassVar[str]

    def __init__(self) -> None:
        self._whole = XGBoost()
        self._boosters: list[xgboost.Booster] = []

    def predict(self, features: Matrix) -> Prediction:
        return self._whole.predict(features)

    def save(self) -> bytes:
        arrays = {"whole": as_array(self._whole.save()), **as_arrays(self._boosters)}
        return pack(self.KIND, {"members": len(self._boosters)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        model = cls()
        model._whole = XGBoost.load(arrays["whole"].tobytes())
        model._boosters = from_arrays(arrays, numbers["members"], cls.KIND)
        return model
