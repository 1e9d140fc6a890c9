"""A model of one task's history, for rounds without a cost model."""

import itertools
from io import BytesIO

import numpy as np

from costmodels.base import Column, CostModel, Groups, Matrix, Prediction, Vector
from searchers.learning.serial_matmul import product

LENGTHS = (0.25, 0.5, 1.0)  # shares of the typical distance between rows
NOISES = (0.01, 0.1)  # shares of the labels' variance
KEPT = 1e-6  # a column that varies less than this tells rows apart no better than rounding does

Array = Column


class KernelRegression(CostModel):
    """Kernel regression over features; length and noise are chosen by leave-one-out error."""

    def __init__(self) -> None:
        self._state: dict[str, Array] = {}

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        del groups, seed  # one task, and nothing is drawn
        self._state = {}
        if not len(labels):
            return
        rows = np.clip(np.nan_to_num(features.astype(np.float64)), -1e6, 1e6)
        centre: Array = rows.mean(axis=0)
        spread: Array = rows.std(axis=0)
        scale: Array = np.where(spread > KEPT, 1 / np.maximum(spread, KEPT), 0.0)
        known, mean = (rows - centre) * scale, labels.mean(dtype=np.float64)
        squared = _squared_distances(known, known)
        typical = np.median(squared[squared > 0]) if (squared > 0).any() else 1.0
        fits = [
            _Fit(squared, labels - mean, typical * length**2, noise)
            for length, noise in itertools.product(LENGTHS, NOISES)
        ]
        best = min(fits, key=lambda fit: fit.error)
        self._state = {"centre": centre, "scale": scale, "known": known, "mean": np.array(mean)}
        self._state |= {"length": np.array(best.length), "weights": best.weights}
        self._state["variance"] = np.array(best.variance)

    def predict(self, features: Matrix) -> Prediction:
        """Without data all rows score alike, with the widest spread."""
        if not self._state:
            alike = np.zeros(len(features), dtype=np.float32)
            return Prediction(alike, alike + 1)
        s = self._state
        rows = (np.clip(np.nan_to_num(features.astype(np.float64)), -1e6, 1e6) - s["centre"]) * s["scale"]
        near = _kernel(_squared_distances(rows, s["known"]), float(s["length"]))
        spread = np.sqrt(s["variance"] * (1 - near.max(axis=1) ** 2))  # as if only the nearest row were known
        score = np.einsum("nk,k->n", near, s["weights"]) + s["mean"]
        return Prediction(score.astype(np.float32), spread.astype(np.float32))

    def save(self) -> bytes:
        blob = BytesIO()
        np.savez(blob, **self._state)  # type: ignore[arg-type]
        return blob.getvalue()

    @classmethod
    def load(cls, blob: bytes) -> "KernelRegression":
        model = cls()
        with np.load(BytesIO(blob), allow_pickle=False) as stored:
            model._state = dict(stored)
        return model


class _Fit:
    """The regression for one length and noise, with its leave-one-out error."""

    def __init__(self, squared: Array, label: Array, length: float, noise: float) -> None:
        self.length = length
        inverse = np.linalg.inv(_kernel(squared, length) + noise * np.eye(len(label)))
        self.weights = np.einsum("kj,j->k", inverse, label)  # einsum wakes no threads
        self.error = float(np.mean((self.weights / np.diag(inverse)) ** 2))
        self.variance = float(label @ self.weights / len(label))


def _kernel(squared: Array, length: float) -> Array:
    return np.asarray(np.exp(-squared / (2 * length)))


def _squared_distances(left: Array, right: Array) -> Array:
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * product(left, right.T)
    return np.asarray(np.maximum(0.0, squares))
