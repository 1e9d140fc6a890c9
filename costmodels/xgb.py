"""Gradient-boosted trees on decision features: the default cost model."""

import struct

import numpy as np
import xgboost
from numpy.typing import NDArray

from costmodels.base import FAILED_LABEL, CostModel, Matrix, Prediction, Vector

MEMBERS = 4
TREES = 40
THREADS = 1  # as fast at this size, and OpenMP threads that spin stall everyone on a busy host
LARGEST = float(np.finfo(np.float32).max)
PARAMETERS = {
    "objective": "reg:squarederror",
    "tree_method": "hist",
    "max_depth": 6,
    "eta": 0.2,
    "min_child_weight": 1.0,
    "colsample_bynode": 0.5,
    "max_bin": 64,
    "nthread": THREADS,
    "verbosity": 0,
}


class XGBoost(CostModel):
    """A few boosters, each fit on its own bootstrap of the rows; where they disagree the score is unsure.

    Regression, not ranking: it ordered better in trials, and its scores keep their meaning (log of best over
    latency) from round to round. Fast rows weigh more: a wrong order among slow ones costs nothing.
    """

    def __init__(self) -> None:
        self._boosters: list[xgboost.Booster] = []
        self._noise = -FAILED_LABEL  # what the members miss alike, as a standard deviation

    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None:
        del groups  # labels are relative to their group's best already
        if not len(labels):
            self._boosters, self._noise = [], -FAILED_LABEL
            return
        rng = np.random.default_rng(seed)
        rows = _finite(features)
        data = xgboost.QuantileDMatrix(rows, labels, max_bin=PARAMETERS["max_bin"], nthread=THREADS)
        importance = np.exp(labels.astype(np.float64)) + 0.1
        drawn = rng.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), size=MEMBERS)
        self._boosters = [self._member(data, counts * importance, rng) for counts in drawn]
        self._noise = self._unexplained(rows, labels, importance * (drawn == 0))

    @staticmethod
    def _member(
        data: xgboost.QuantileDMatrix, weights: NDArray[np.float64], rng: np.random.Generator
    ) -> xgboost.Booster:
        data.set_weight(weights)
        seed = int(rng.integers(2**31))
        return xgboost.train({**PARAMETERS, "seed": seed}, data, num_boost_round=TREES)

    def _unexplained(self, rows: Matrix, labels: Vector, left_out: NDArray[np.float64]) -> float:
        """The error on rows that a member did not see, where the spread of the members does not cover it."""
        if not left_out.any():
            return -FAILED_LABEL
        scores = self._scores(rows)
        error = np.average((scores - labels) ** 2, weights=left_out)
        covered = np.average(np.tile(scores.var(axis=0, ddof=1), (MEMBERS, 1)), weights=left_out)
        return float(np.sqrt(max(0.0, error - covered)))

    def _scores(self, rows: Matrix) -> Matrix:
        return np.stack([booster.inplace_predict(rows) for booster in self._boosters])

    def predict(self, features: Matrix) -> Prediction:
        """Before any data every row scores alike, and any score is possible."""
        if not self._boosters:
            nothing = np.zeros(len(features), dtype=np.float32)
            return Prediction(nothing, nothing + np.float32(self._noise))
        scores = self._scores(_finite(features))
        spread = np.sqrt(scores.var(axis=0, ddof=1) + self._noise**2)
        return Prediction(scores.mean(axis=0), spread.astype(np.float32))

    def save(self) -> bytes:
        blobs = [bytes(booster.save_raw("ubj")) for booster in self._boosters]
        header = struct.pack(f"<dI{len(blobs)}Q", self._noise, len(blobs), *map(len, blobs))
        return header + b"".join(blobs)

    @classmethod
    def load(cls, blob: bytes) -> "XGBoost":
        model = cls()
        model._noise, count = struct.unpack_from("<dI", blob)
        start = struct.calcsize(f"<dI{count}Q")
        for length in struct.unpack_from(f"<{count}Q", blob, struct.calcsize("<dI")):
            booster = xgboost.Booster({"nthread": THREADS})
            booster.load_model(bytearray(blob[start : start + length]))
            model._boosters.append(booster)
            start += length
        return model


def _finite(features: Matrix) -> Matrix:
    return np.nan_to_num(features, nan=0.0, posinf=LARGEST, neginf=-LARGEST)
