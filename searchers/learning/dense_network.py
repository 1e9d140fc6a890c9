"""A small fully connected network in numpy, with ReLU layers."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.dense_layers import Adam

Array = NDArray[np.float64]

SERIAL = 1 << 18  # multiplications up to which OpenBLAS uses only the calling thread


def multiply_in_blocks(left: NDArray[np.floating], right: NDArray[np.floating]) -> Array:
    """Return left @ right, computed in blocks that OpenBLAS does not spread over threads.
    On a busy host, threads that wait for each other take far longer. The result does not
    depend on the number of cores."""
    block = max(1, SERIAL // max(1, right.size))
    if len(left) <= block:
        return np.asarray(left @ right, dtype=np.float64)
    parts = [left[start : start + block] @ right for start in range(0, len(left), block)]
    return np.asarray(np.concatenate(parts), dtype=np.float64)


Rows = NDArray[np.floating]
Slope = Callable[[Array], Array]  # maps outputs to the gradient of the loss for them

KEPT = 1e-6  # columns that vary less are rounding noise


class DenseNetwork:
    """A network that maps each row to `outputs` numbers. Columns are standardised by the
    constructor's rows; constant columns are ignored."""

    def __init__(
        self, rows: Rows, hidden_sizes: Sequence[int], outputs: int, rate: float, rng: np.random.Generator
    ) -> None:
        spread = rows.std(axis=0)
        self._columns = np.flatnonzero(spread > KEPT)
        self._centre = rows[:, self._columns].mean(axis=0, dtype=np.float64)
        self._scale = 1 / spread[self._columns]
        sizes = [len(self._columns), *hidden_sizes, outputs]
        self._weights = [rng.normal(0, np.sqrt(2 / max(1, a)), size=(a, b)) for a, b in pairwise(sizes)]
        self._weights[-1] *= 0.1  # starts near zero
        self._biases = [np.zeros(size) for size in sizes[1:]]
        self._adam = Adam([*self._weights, *self._biases], rate)

    def __call__(self, rows: Rows) -> Array:
        return self._layers(rows)[-1]

    def learn(self, rows: Rows, slope: Slope) -> None:
        """Make one gradient step; `slope` returns the gradient of the loss for the outputs."""
        layers = self._layers(rows)
        error = slope(layers[-1])
        weights: list[Array] = []
        biases: list[Array] = []
        for index in reversed(range(len(self._weights))):
            weights.insert(0, multiply_in_blocks(layers[index].T, error))
            biases.insert(0, error.sum(axis=0))
            error = multiply_in_blocks(error, self._weights[index].T) * (layers[index] > 0)
        self._adam.step([*weights, *biases])

    def _layers(self, rows: Rows) -> list[Array]:
        layers = [np.clip((rows[:, self._columns] - self._centre) * self._scale, -5.0, 5.0)]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            layers.append(np.maximum(0.0, multiply_in_blocks(layers[-1], weight) + bias))
        return [*layers, multiply_in_blocks(layers[-1], self._weights[-1]) + self._biases[-1]]
