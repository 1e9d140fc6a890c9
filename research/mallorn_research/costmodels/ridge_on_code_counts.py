"""Ridge regression on counts of instructions (Tuna): a linear model per family."""

from typing import ClassVar, Final, NamedTuple

import numpy as np

from mallorn.costmodels.base import Column, CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import UNKNOWN, untrained_prediction, weight_fast_rows
from mallorn.costmodels.serialization import pack, unpack
from mallorn.costmodels.views import CODE, check_rows, check_width
from mallorn_research.costmodels.standardize_inputs import HingeFeatures, fit_hinge_features

KIND: Final = "static"
STRENGTHS: Final = np.logspace(-1, 4, 11)  # ridge penalties; leave-one-out error selects one
LEAST_NOISE: Final = 1e-6


class RidgeFit(NamedTuple):
    """Coefficients, posterior covariance in units of noise variance, and the noise."""

    coefficients: Column
    unsure: Column
    noise: float


class RidgeOnCodeCounts(CostModel):
    """A linear model of instruction counts, and of their excess over some quantiles.

    The deviation is that of Bayesian regression: large for rows unlike the training rows.
    """

    view: ClassVar[str] = CODE.name

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._inputs: HingeFeatures | None = None
        self._ridge = RidgeFit(np.empty(0), np.empty((0, 0)), UNKNOWN)

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        check_width(features, self.view)
        self._forget()
        if not len(labels):
            return
        self._inputs = fit_hinge_features(features)
        rows = self._design_matrix(features)
        targets = labels.astype(np.float64)
        weights = weight_fast_rows(labels)
        # Select the penalty with the least weighted leave-one-out error.
        root = np.sqrt(weights / weights.mean())
        middle = float(np.average(targets, weights=weights))
        truth = root * (targets - middle)
        left, size, right = np.linalg.svd(rows * root[:, None], full_matrices=False)
        errors = [left_out_error(left, size, truth, strength) for strength in STRENGTHS]
        inverse = 1 / (size**2 + STRENGTHS[np.argmin(errors)])
        coefficients = right.T @ (size * inverse * (left.T @ truth))
        coefficients[0] += middle
        noise = max(min(errors), LEAST_NOISE) ** 0.5 if len(targets) > 1 else UNKNOWN
        self._ridge = RidgeFit(coefficients, (right.T * inverse) @ right, noise)

    def _design_matrix(self, features: Matrix) -> Column:
        assert self._inputs is not None  # noqa: S101
        bent = self._inputs.transform(features).astype(np.float64)
        return np.hstack([np.ones((len(features), 1)), bent])

    def predict(self, features: Matrix) -> Prediction:
        if self._inputs is None:
            return untrained_prediction(len(features))
        check_width(features, self.view)
        rows = self._design_matrix(features)
        mean = np.einsum("nc,c->n", rows, self._ridge.coefficients)
        leaning = np.einsum("nc,cd,nd->n", rows, self._ridge.unsure, rows, optimize=True)
        std = self._ridge.noise * np.sqrt(1 + np.maximum(leaning, 0))
        return Prediction(mean.astype(np.float32), std.astype(np.float32))

    def save(self) -> bytes:
        inputs = self._inputs._asdict() if self._inputs else {}
        arrays = {"coefficients": self._ridge.coefficients, "unsure": self._ridge.unsure}
        return pack(KIND, {"noise": self._ridge.noise}, {**inputs, **arrays})

    @classmethod
    def load(cls, blob: bytes) -> "RidgeOnCodeCounts":
        numbers, arrays = unpack(KIND, blob)
        model = cls()
        model._ridge = RidgeFit(arrays["coefficients"], arrays["unsure"], numbers["noise"])
        if "columns" in arrays:
            model._inputs = HingeFeatures(*(arrays[name] for name in HingeFeatures._fields))
        return model


def left_out_error(left: Column, size: Column, truth: Column, strength: float) -> float:
    """Return the leave-one-out mean squared error of a ridge fit, from the rows' SVD."""
    shrinkage = size**2 / (size**2 + strength)
    lever = np.einsum("nc,c->n", left**2, shrinkage)
    errors = (truth - left @ (shrinkage * (left.T @ truth))) / np.maximum(1 - lever, LEAST_NOISE)
    return float(np.mean(errors**2))
