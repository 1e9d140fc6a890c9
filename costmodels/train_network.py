"""Gradient descent for one network, with early stopping on rows left out."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from costmodels.base import Column, Indices, Vector
from costmodels.dense_layers import AdamW
from costmodels.ensemble_spread import importance
from costmodels.minibatches_and_gradients import push_of
from costmodels.standardize_inputs import Table
from costmodels.torch_layers import Layers, Tensors

if TYPE_CHECKING:
    from torch import Tensor

ORDER: Final = 0.02  # weight of the ranking loss beside the squared error
CHECK_STEPS: Final = 25
PATIENCE: Final = 4  # checks without a gain
MOST_CHECKED: Final = 256
CHUNK: Final = 256  # rows scored at once, so that their activations fit the caches

Network = Callable[[Tensors, "Tensor", "Tensor"], "Tensor"]
"""From layers, tables (rows x lines x columns) and the head of each row to scores."""


class TrainingRows(NamedTuple):
    """Rows of any task to learn from, and the head that answers for each."""

    tables: Table
    labels: Vector
    heads: Indices

    def at(self, rows: Indices) -> "TrainingRows":
        return TrainingRows(self.tables[rows], self.labels[rows], self.heads[rows])


def descend(
    network: Network, start: Layers, rows: TrainingRows, batches: Indices, unseen: Indices, rate: float
) -> Layers:
    """The layers that were best on the rows left out, or the last ones if no rows were left out."""
    layers = {name: layer.copy() for name, layer in start.items()}
    step = _GradientStep(network, layers, rows, AdamW(list(layers.values()), rate, len(batches)))
    check = rows.at(unseen[:MOST_CHECKED])
    best, least, waited = start, np.inf, 0
    for at, batch in enumerate(batches, start=1):
        step(batch)
        if at % CHECK_STEPS == 0 and len(check.labels):
            off = _unexplained(network, layers, check)
            waited = 0 if off < least else waited + 1
            if off < least:
                best, least = {name: layer.copy() for name, layer in layers.items()}, off
            if waited == PATIENCE:
                break
    return best if np.isfinite(least) else layers


class _GradientStep:
    """Updates layers in place: torch and numpy share the arrays."""

    def __init__(self, network: Network, layers: Layers, rows: TrainingRows, adam: AdamW) -> None:
        import torch

        self._network, self._rows, self._adam = network, rows, adam
        self._tensors = {name: torch.from_numpy(layer).requires_grad_() for name, layer in layers.items()}

    def __call__(self, batch: Indices) -> None:
        import torch

        tables, labels, heads = self._rows.at(batch)
        scores = self._network(self._tensors, torch.from_numpy(tables), torch.from_numpy(heads))
        weight = importance(labels).astype(np.float32)
        push = push_of(scores.detach().numpy()[None], labels[None], weight[None], ORDER)[0]
        slopes = torch.autograd.grad(scores, list(self._tensors.values()), torch.from_numpy(push))
        self._adam.step([slope.numpy() for slope in slopes])


def scores_of(network: Network, layers: Layers, tables: Table, heads: Indices) -> Column:
    """Scores in double precision, so that a row's score does not depend on the rows beside it."""
    import torch

    tensors = {name: torch.from_numpy(layer.astype(np.float64)) for name, layer in layers.items()}
    answer = np.empty(len(tables), dtype=np.float64)
    with torch.no_grad():
        for first in range(0, len(tables), CHUNK):
            rows = slice(first, first + CHUNK)
            table = torch.from_numpy(tables[rows].astype(np.float64))
            answer[rows] = network(tensors, table, torch.from_numpy(heads[rows])).numpy()
    return answer


def _unexplained(network: Network, layers: Layers, rows: TrainingRows) -> float:
    """The share of the labels' variance that the scores leave unexplained after linear scaling."""
    scores = scores_of(network, layers, rows.tables, rows.heads)
    labels = rows.labels.astype(np.float64)
    (own, shared), (_, known) = np.cov(scores, labels, aweights=importance(rows.labels), ddof=0)
    return float(1 - max(shared, 0) ** 2 / (own * known)) if own * known else 1.0
