"""Train several small networks at once in numpy: layers, gradients, minibatches, Adam."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Vector
from mallorn.searchers.learning.knobs import Adam, Parameter

Tensor = NDArray[np.floating]  # first axis: the network
Layers = Sequence[Tensor]  # weights and offsets, alternating


def initial(rng: np.random.Generator, networks: int, widths: Sequence[int]) -> list[Tensor]:
    """Return He-initialised weights; those of the last layer are ten times smaller."""
    layers: list[Tensor] = []
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        scale = np.sqrt(2 / max(inputs, 1)) * (0.1 if index == len(widths) - 2 else 1.0)
        layers.append(rng.normal(0, scale, (networks, inputs, outputs)).astype(np.float32))
        layers.append(np.zeros((networks, 1, outputs), dtype=np.float32))
    return layers


def forward(layers: Layers, rows: Tensor) -> list[Tensor]:
    """Return the input of each layer, and last the scores (networks x rows x 1)."""
    values = [rows]
    for index in range(0, len(layers), 2):
        raw = values[-1] @ layers[index] + layers[index + 1]
        values.append(raw if index == len(layers) - 2 else np.maximum(raw, 0))
    return values


def gradients(layers: Layers, values: Sequence[Tensor], score_gradient: Tensor) -> list[Tensor]:
    """Return the loss gradient of each layer's weights and offsets, by backpropagation.

    `push` is the loss gradient with respect to the scores (networks x rows).
    """
    answer: list[Tensor] = []
    back = score_gradient[:, :, None]
    for index in range(len(layers) - 2, -1, -2):
        layer_input = values[index // 2]
        answer[:0] = [layer_input.transpose(0, 2, 1) @ back, back.sum(axis=1, keepdims=True)]
        back = (back @ layers[index].transpose(0, 2, 1)) * (layer_input > 0)
    return answer


def input_gradients(layers: Layers, values: Sequence[Tensor]) -> Tensor:
    """Return each score's gradient with respect to its input (networks x rows x columns)."""
    back = np.ones_like(values[-1])
    for index in range(len(layers) - 2, -1, -2):
        back = back @ layers[index].transpose(0, 2, 1)
        if index:
            back = back * (values[index // 2] > 0)
    return back


WEIGHT_DECAY: Final = 0.5


class AdamW(Adam):
    """Adam with weight decay and a cosine learning rate that is zero after `steps` steps."""

    def __init__(self, parameters: Sequence[Parameter], rate: float, steps: int) -> None:
        super().__init__(parameters, rate)
        self._last = steps

    def step(self, gradients: Sequence[Parameter], share: float = 1.0) -> None:
        super().step(gradients, share * 0.5 * (1 + np.cos(np.pi * (self._steps + 1) / self._last)))

    def _change(self, parameter: Parameter, rate: float, mean: Parameter, root: Parameter) -> Parameter:
        return np.float32(rate) * (mean / root + WEIGHT_DECAY * parameter)


Scores = NDArray[np.floating]
Rows = NDArray[np.int64]


def lambda_rank_gradient(scores: Scores, labels: Scores) -> Scores:
    """Return the LambdaRank gradient for each score; each row of `scores` is one list.

    A wrongly ordered pair is weighted by how much swapping it changes the discounted gain
    of the list. A candidate's gain is its relative speed; its rank sets the discount.
    """
    gain = np.exp(labels)
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable")
    discount = 1 / np.log2(rank + 2)
    ideal = (-np.sort(-gain, axis=1) / np.log2(np.arange(scores.shape[1]) + 2)).sum(axis=1)
    swap = np.abs(_differences(gain) * _differences(discount)) / ideal[:, None, None]
    wrong = 1 / (
        1 + np.exp(np.clip(_differences(scores), -30, 30))
    )  # probability that the faster, i, is second
    push = np.where(_differences(labels) > 0, wrong * swap, 0)
    return np.asarray(push.sum(axis=1) - push.sum(axis=2), dtype=np.float32)


def _differences(values: Scores) -> Scores:
    return values[:, :, None] - values[:, None, :]


def one_group_batches(
    groups: Rows, bootstraps: Rows, steps: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw batches, each of rows of one group (steps x members x size), by group size."""
    _, dense = np.unique(groups, return_inverse=True)
    answer = np.empty((steps, len(bootstraps), size), dtype=np.int64)
    for member, counts in enumerate(bootstraps):
        rows = np.repeat(np.arange(len(groups)), counts)
        rows = rows[np.argsort(dense[rows], kind="stable")]
        batch_groups = dense[rng.choice(rows, steps)]
        first = np.searchsorted(dense[rows], batch_groups)[:, None]
        past = np.searchsorted(dense[rows], batch_groups, side="right")[:, None]
        positions = first + rng.random((steps, size)) * (past - first)
        answer[:, member] = rows[positions.astype(np.int64)]
    return answer


def loss_gradient(scores: Scores, truth: Vector, weight: Vector, order: float) -> Scores:
    """Return each score's gradient of the squared error plus `order` times LambdaRank."""
    value = weight * (scores - truth) / scores.shape[1]
    return np.asarray(value + np.float32(order) * lambda_rank_gradient(scores, truth), dtype=np.float32)
