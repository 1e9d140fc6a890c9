"""Several small networks at once: dense layers and their gradients, in numpy."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[np.floating]  # the networks are the first axis
Layers = Sequence[Tensor]  # weights and offsets, alternating


def initial(rng: np.random.Generator, networks: int, widths: Sequence[int]) -> list[Tensor]:
    """He-initialised weights; the last layer starts near zero."""
    layers: list[Tensor] = []
    for at, (before, after) in enumerate(pairwise(widths)):
        scale = np.sqrt(2 / max(before, 1)) * (0.1 if at == len(widths) - 2 else 1.0)
        layers.append(rng.normal(0, scale, (networks, before, after)).astype(np.float32))
        layers.append(np.zeros((networks, 1, after), dtype=np.float32))
    return layers


def forward(layers: Layers, rows: Tensor) -> list[Tensor]:
    """The input of each layer, then the scores (networks x rows x 1)."""
    values = [rows]
    for at in range(0, len(layers), 2):
        raw = values[-1] @ layers[at] + layers[at + 1]
        values.append(raw if at == len(layers) - 2 else np.maximum(raw, 0))
    return values


def gradients(layers: Layers, values: Sequence[Tensor], push: Tensor) -> list[Tensor]:
    """The gradient of the loss by each layer, given its gradient by the scores (networks x rows)."""
    answer: list[Tensor] = []
    back = push[:, :, None]
    for at in range(len(layers) - 2, -1, -2):
        below = values[at // 2]
        answer[:0] = [below.transpose(0, 2, 1) @ back, back.sum(axis=1, keepdims=True)]
        back = (back @ layers[at].transpose(0, 2, 1)) * (below > 0)
    return answer


def slopes(layers: Layers, values: Sequence[Tensor]) -> Tensor:
    """The gradient of each score by its row (networks x rows x columns)."""
    back = np.ones_like(values[-1])
    for at in range(len(layers) - 2, -1, -2):
        back = back @ layers[at].transpose(0, 2, 1)
        if at:
            back = back * (values[at // 2] > 0)
    return back
