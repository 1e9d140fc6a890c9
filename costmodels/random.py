"""The baseline that every cost model must beat: a fixed random score for each row."""

import hashlib
import struct

import numpy as np

from mallorn.costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.serialization import unreadable
from mallorn.costmodels.views import check_rows

_FORMAT = "<q"


class RandomModel(CostModel):
    """Scores a row by a hash of its bytes and the seed: reproducible, but unrelated to speed."""

    def __init__(self) -> None:
        self._seed = 0

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._seed = seed

    def predict(self, features: Matrix) -> Prediction:
        key = struct.pack(_FORMAT, self._seed)
        rows = np.ascontiguousarray(features, dtype=np.float32)
        digests = (hashlib.blake2b(row.tobytes(), digest_size=4, key=key).digest() for row in rows)
        draws = np.frombuffer(b"".join(digests), dtype="<u4")
        mean = np.log((draws + 1.0) / 2.0**32).astype(np.float32)
        return Prediction(mean, np.ones(len(rows), dtype=np.float32))

    def save(self) -> bytes:
        return struct.pack(_FORMAT, self._seed)

    @classmethod
    def load(cls, blob: bytes) -> "RandomModel":
        model = cls()
        try:
            (model._seed,) = struct.unpack(_FORMAT, blob)
        except struct.error as error:
            raise unreadable("random", str(error)) from error
        return model
