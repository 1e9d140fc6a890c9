"""Small networks in plain numpy, trained with a ranking loss and a squared error."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mallorn.costmodels import ensemble_spread
from mallorn.costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.serialization import pack, unpack
from mallorn.costmodels.views import check_rows
from mallorn_research.costmodels.dense_layers import (
    AdamW,
    Tensor,
    forward,
    gradients,
    initial,
    loss_gradient,
    one_group_batches,
)
from mallorn_research.costmodels.standardize_inputs import HingeFeatures, fit_hinge_features

KIND: Final = "mlp"
MEMBERS: Final = 3
HIDDEN: Final = (64, 64)
STEPS: Final = 800
BATCH: Final = 96
RATE: Final = 6e-3
ORDER: Final = 0.1  # weight of the ranking loss; the squared error has weight 1


class MLP(CostModel):
    """Three networks with two hidden layers, each trained on a bootstrap of the rows.

    Every batch is drawn from one group. The loss is LambdaRank plus a squared error, which
    keeps scores near the labels; a monotone curve fit on left-out rows corrects their
    scale. The number of steps does not depend on the number of rows.
    """

    def __init__(self) -> None:
        self._inputs: HingeFeatures | None = None
        self._layers: list[Tensor] = []
        self._calibration = ensemble_spread.UNCALIBRATED

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._inputs, self._layers, self._calibration = None, [], ensemble_spread.UNCALIBRATED
        if not len(labels):
            return
        self._inputs = fit_hinge_features(features)
        rng = np.random.default_rng(seed)
        rows = self._inputs.transform(features)
        bootstraps = ensemble_spread.bootstrap_counts(rng, len(labels), MEMBERS)
        # BLAS threads wait for each other by spinning; on a busy host, one thread is faster.
        with threadpool_limits(1, user_api="blas"):
            layers = initial(rng, MEMBERS, (rows.shape[1], *HIDDEN, 1))
            layers[-1] += labels.mean()
            adam = AdamW(layers, RATE, STEPS)
            weight = ensemble_spread.weight_fast_rows(labels).astype(np.float32)
            for batch in one_group_batches(groups, bootstraps, STEPS, BATCH, rng):
                values = forward(layers, rows[batch])
                scores, truth = values[-1][:, :, 0], labels[batch]
                adam.step(gradients(layers, values, loss_gradient(scores, truth, weight[batch], ORDER)))
            self._layers = layers
            self._calibration = ensemble_spread.fit_calibration(self._raw(rows), labels, bootstraps == 0)

    def _raw(self, rows: Matrix) -> NDArray[np.float64]:
        layers = [layer.astype(np.float64) for layer in self._layers]
        return np.asarray(forward(layers, rows.astype(np.float64)[None])[-1][:, :, 0], dtype=np.float64)

    def predict(self, features: Matrix) -> Prediction:
        if self._inputs is None:
            return ensemble_spread.untrained_prediction(len(features))
        return self._calibration(self._raw(self._inputs.transform(features)))

    def save(self) -> bytes:
        arrays: dict[str, NDArray[Any]] = {f"layer{index}": layer for index, layer in enumerate(self._layers)}
        inputs = self._inputs._asdict() if self._inputs else {}
        arrays |= {**inputs, **self._calibration.arrays()}
        return pack(KIND, {**self._calibration.numbers, "layers": len(self._layers)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> "MLP":
        numbers, arrays = unpack(KIND, blob)
        model = cls()
        model._calibration = ensemble_spread.ScoreCalibration.from_stored(numbers, arrays)
        model._layers = [arrays[f"layer{index}"] for index in range(numbers["layers"])]
        if model._layers:
            model._inputs = HingeFeatures(*(arrays[name] for name in HingeFeatures._fields))
        return model
