"""A small fully connected network in numpy, with ReLU layers."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.dense_layers import Adam

Array = NDArray[np.float64]
Parameters = Mapping[str, Array]  # the parameters of one sketch's policy, by name

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


def has_shapes(parameters: Parameters, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether the parameters are exactly arrays of these shapes, all finite."""
    return parameters.keys() == shapes.keys() and all(
        parameters[name].shape == shape and bool(np.isfinite(parameters[name]).all())
        for name, shape in shapes.items()
    )


class DenseNetwork:
    """A network that maps each row to `outputs` numbers. Columns are standardised by the
    the constructor's rows, or by the parameters `load` reads; constants are ignored."""

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
        self._width = rows.shape[1]
        self._rate = rate
        self._adam = Adam([*self._weights, *self._biases], rate)

    def parameters(self) -> Parameters:
        """Return scales, weights and biases, but not the state of Adam."""
        scales = {"columns": self._columns.astype(np.float64), "centre": self._centre, "scale": self._scale}
        weights = {f"weight{index}": weight for index, weight in enumerate(self._weights)}
        return scales | weights | {f"bias{index}": bias for index, bias in enumerate(self._biases)}

    def load(self, parameters: Parameters) -> None:
        """Load these parameters; ignore them if their shapes differ."""
        width = len(parameters.get("columns", ()))
        sizes = [width, *(len(bias) for bias in self._biases)]
        weights = {f"weight{index}": pair for index, pair in enumerate(pairwise(sizes))}
        biases = {f"bias{index}": (size,) for index, size in enumerate(sizes[1:])}
        scales = dict.fromkeys(("columns", "centre", "scale"), (width,))
        if not has_shapes(parameters, {**scales, **weights, **biases}):
            return
        columns = parameters["columns"].astype(np.int64)
        if not ((columns >= 0) & (columns < self._width)).all():
            return
        self._columns, self._centre, self._scale = columns, parameters["centre"], parameters["scale"]
        self._weights = [parameters[name].copy() for name in weights]
        self._biases = [parameters[name].copy() for name in biases]
        self._adam = Adam([*self._weights, *self._biases], self._rate)

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
