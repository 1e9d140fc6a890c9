"""Gradient-boosted trees: on decision features (the default cost model), and for kernels of GPUs."""

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import ClassVar, Final

import numpy as np
import xgboost

from mallorn.costmodels.base import Column, CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import (
    UNKNOWN,
    Weights,
    bootstrap_counts,
    combine_member_scores,
    replace_nonfinite,
    unexplained_error,
    untrained_prediction,
    weight_fast_rows,
)
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.serialization import add_digest, check_and_remove_digest, unreadable
from mallorn.costmodels.views import KERNELS, check_rows, check_width

MEMBERS: Final = 4
TREES: Final = 40
THREADS: Final = 1  # as fast at this size; spinning OpenMP threads slow down a busy host
PARAMETERS: Final = {
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
MODELLED: Final = -1  # column of log2(modelled time / time at the machine's peaks)


def make_quantile_matrix(rows: Matrix, targets: Vector) -> xgboost.QuantileDMatrix:
    """Return rows in XGBoost's histogram bins, which all members of an ensemble share."""
    return xgboost.QuantileDMatrix(rows, targets, max_bin=PARAMETERS["max_bin"], nthread=THREADS)


def train_booster(
    data: xgboost.QuantileDMatrix, weights: Weights, rng: np.random.Generator
) -> xgboost.Booster:
    """Train one member of an ensemble with squared error."""
    data.set_weight(weights)
    return xgboost.train({**PARAMETERS, "seed": int(rng.integers(2**31))}, data, num_boost_round=TREES)


def member_scores(boosters: Sequence[xgboost.Booster], rows: Matrix) -> Matrix:
    """Return the score of every member for every row of features (members x rows)."""
    return np.stack([booster.inplace_predict(rows) for booster in boosters])


def as_bytes(booster: xgboost.Booster) -> bytes:
    return bytes(booster.save_raw("ubj"))


def from_bytes(blob: bytes, kind: str) -> xgboost.Booster:
    """Return the booster that `as_bytes` stored. Raises InvalidRequest for other bytes."""
    booster = xgboost.Booster({"nthread": THREADS})
    try:
        booster.load_model(bytearray(blob))
    except xgboost.core.XGBoostError as error:
        raise unreadable(kind, str(error).splitlines()[0]) from error
    return booster


KIND = "xgboost"


class XGBoost(CostModel):
    """Boosters, each fit on its own bootstrap of the rows; their disagreement is the spread.

    It uses regression, not ranking, so that scores keep their meaning (log of best over
    latency) from round to round. Fast rows weigh more: the order of slow rows is irrelevant.
    """

    def __init__(self) -> None:
        self.boosters: list[xgboost.Booster] = []
        self.noise = UNKNOWN  # error that all members share, as a standard deviation

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self.fit_boosters(features, labels, weight_fast_rows(labels), seed)

    def fit_boosters(self, features: Matrix, targets: Vector, weight: Weights, seed: int) -> None:
        self.boosters, self.noise = [], UNKNOWN
        if not len(targets):
            return
        rng, rows = np.random.default_rng(seed), replace_nonfinite(features)
        data = make_quantile_matrix(rows, targets)
        bootstraps = bootstrap_counts(rng, len(targets), MEMBERS)
        self.boosters = [train_booster(data, counts * weight, rng) for counts in bootstraps]
        scores = member_scores(self.boosters, rows)
        self.noise = unexplained_error(scores, targets, weight * (bootstraps == 0))

    def predict(self, features: Matrix) -> Prediction:
        if not self.boosters:
            return untrained_prediction(len(features))
        return combine_member_scores(member_scores(self.boosters, replace_nonfinite(features)), self.noise)

    def save(self) -> bytes:
        blobs = [as_bytes(booster) for booster in self.boosters]
        header = struct.pack(f"<dI{len(blobs)}Q", self.noise, len(blobs), *map(len, blobs))
        return add_digest(header + b"".join(blobs))

    @classmethod
    def load(cls, blob: bytes) -> "XGBoost":
        content, model = check_and_remove_digest(KIND, blob), cls()
        try:
            model.noise, count = struct.unpack_from("<dI", content)
            lengths = struct.unpack_from(f"<{count}Q", content, struct.calcsize("<dI"))
        except struct.error as error:
            raise unreadable(KIND, str(error)) from error
        ends = list(accumulate(lengths, initial=struct.calcsize(f"<dI{count}Q")))
        if ends[-1] != len(content):
            raise unreadable(KIND, f"the model has {len(content)} bytes, the header names {ends[-1]}")
        model.boosters = [from_bytes(content[start:end], KIND) for start, end in pairwise(ends)]
        return model


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
