"""Gradient-boosted trees on decision features: the default cost model."""

import struct
from itertools import accumulate, pairwise

import numpy as np
import xgboost

from costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from costmodels.ensemble_spread import UNKNOWN, draws, finite, ignorant, importance, pooled, unexplained
from costmodels.serialization import sealed, unreadable, unsealed
from costmodels.views import check_rows
from costmodels.xgboost_ensemble import MEMBERS, as_bytes, as_data, from_bytes, grow, opinions

KIND = "xgboost"


class XGBoost(CostModel):
    """Boosters, each fit on its own bootstrap of the rows; their disagreement is the spread.

    It uses regression, not ranking, so that scores keep their meaning (log of best over
    latency) from round to round. Fast rows have larger weights, since the order of slow rows
    is irrelevant.
    """

    def __init__(self) -> None:
        self._boosters: list[xgboost.Booster] = []
        self._noise = UNKNOWN  # error that all members share, as a standard deviation

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._boosters, self._noise = [], UNKNOWN
        if not len(labels):
            return
        rng = np.random.default_rng(seed)
        rows, weight = finite(features), importance(labels)
        data = as_data(rows, labels)
        drawn = draws(rng, len(labels), MEMBERS)
        self._boosters = [grow(data, counts * weight, rng) for counts in drawn]
        self._noise = unexplained(opinions(self._boosters, rows), labels, weight * (drawn == 0))

    def predict(self, features: Matrix) -> Prediction:
        if not self._boosters:
            return ignorant(len(features))
        return pooled(opinions(self._boosters, finite(features)), self._noise)

    def save(self) -> bytes:
        blobs = [as_bytes(booster) for booster in self._boosters]
        header = struct.pack(f"<dI{len(blobs)}Q", self._noise, len(blobs), *map(len, blobs))
        return sealed(header + b"".join(blobs))

    @classmethod
    def load(cls, blob: bytes) -> "XGBoost":
        model = cls()
        model._noise, parts = _parts(unsealed(KIND, blob))
        model._boosters = [from_bytes(part, KIND) for part in parts]
        return model


def _parts(blob: bytes) -> tuple[float, list[bytes]]:
    """Split a saved model into its noise and the bytes of each booster.

    Raises InvalidRequest if the length does not match the header.
    """
    try:
        noise, count = struct.unpack_from("<dI", blob)
        lengths = struct.unpack_from(f"<{count}Q", blob, struct.calcsize("<dI"))
    except struct.error as error:
        raise unreadable(KIND, str(error)) from error
    ends = list(accumulate(lengths, initial=struct.calcsize(f"<dI{count}Q")))
    if ends[-1] != len(blob):
        raise unreadable(KIND, f"there are {len(blob)} bytes where {ends[-1]} are announced")
    return noise, [blob[start:end] for start, end in pairwise(ends)]
