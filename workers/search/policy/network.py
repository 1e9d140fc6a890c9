"""A small fully connected network in numpy, with ReLU layers."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from costmodels.adam import Adam
from workers.search.policy.product import Array, product

Rows = NDArray[np.floating]
Slope = Callable[[Array], Array]  # the gradient of the loss by the outputs

KEPT = 1e-6  # columns that vary less are rounding noise


class DenseNetwork:
    """Rows in, `outputs` numbers a row out.

    Columns are scaled by the rows it is made with; constant ones are ignored.
    """

    def __init__(
        self, rows: Rows, hidden: Sequence[int], outputs: int, rate: float, rng: np.random.Generator
    ) -> None:
        spread = rows.std(axis=0)
        self._columns = np.flatnonzero(spread > KEPT)
        self._centre = rows[:, self._columns].mean(axis=0, dtype=np.float64)
        self._scale = 1 / spread[self._columns]
        sizes = [len(self._columns), *hidden, outputs]
        self._weights = [rng.normal(0, np.sqrt(2 / max(1, a)), size=(a, b)) for a, b in pairwise(sizes)]
        self._weights[-1] *= 0.1  # starts near zero
        self._biases = [np.zeros(size) for size in sizes[1:]]
        self._adam = Adam([*self._weights, *self._biases], rate)

    def __call__(self, rows: Rows) -> Array:
        return self._layers(rows)[-1]

    def learn(self, rows: Rows, slope: Slope) -> None:
        """One step down a loss, given its gradient by the outputs."""
        layers = self._layers(rows)
        error = slope(layers[-1])
        weights: list[Array] = []
        biases: list[Array] = []
        for at in reversed(range(len(self._weights))):
            weights.insert(0, product(layers[at].T, error))
            biases.insert(0, error.sum(axis=0))
            error = product(error, self._weights[at].T) * (layers[at] > 0)
        self._adam.step([*weights, *biases])

    def _layers(self, rows: Rows) -> list[Array]:
        layers = [np.clip((rows[:, self._columns] - self._centre) * self._scale, -5.0, 5.0)]
        for weight, bias in zip(self._weights[:-1], self._biases[:-1], strict=True):
            layers.append(np.maximum(0.0, product(layers[-1], weight) + bias))
        return [*layers, product(layers[-1], self._weights[-1]) + self._biases[-1]]
