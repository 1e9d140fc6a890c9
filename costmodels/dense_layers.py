"""Several small networks at once: dense layers, their gradients and Adam's steps, in numpy."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

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


Parameter = NDArray[np.floating]

DECAY, SQUARE_DECAY, TINY = 0.9, 0.99, 1e-8
WEIGHT_DECAY: Final = 0.5


class Adam:
    """Updates parameters in place against the given gradients."""

    def __init__(self, parameters: Sequence[Parameter], rate: float) -> None:
        self._parameters, self._rate, self._steps = parameters, rate, 0
        self._mean = [np.zeros_like(parameter) for parameter in parameters]
        self._square = [np.zeros_like(parameter) for parameter in parameters]

    def step(self, gradients: Sequence[Parameter], share: float = 1.0) -> None:
        """One bias-corrected step, at this share of the rate."""
        self._steps += 1
        rate = self._rate * share * np.sqrt(1 - SQUARE_DECAY**self._steps) / (1 - DECAY**self._steps)
        moments = zip(self._parameters, gradients, self._mean, self._square, strict=True)
        for parameter, gradient, mean, square in moments:
            mean += (1 - DECAY) * (gradient - mean)
            square += (1 - SQUARE_DECAY) * (gradient**2 - square)
            parameter -= self._change(parameter, rate, mean, np.sqrt(square) + TINY)

    def _change(self, parameter: Parameter, rate: float, mean: Parameter, root: Parameter) -> Parameter:
        return rate * mean / root


class AdamW(Adam):
    """Adam with weight decay, and with steps that shrink to zero."""

    def __init__(self, parameters: Sequence[Parameter], rate: float, steps: int) -> None:
        super().__init__(parameters, rate)
        self._last = steps

    def step(self, gradients: Sequence[Parameter], share: float = 1.0) -> None:
        super().step(gradients, share * 0.5 * (1 + np.cos(np.pi * (self._steps + 1) / self._last)))

    def _change(self, parameter: Parameter, rate: float, mean: Parameter, root: Parameter) -> Parameter:
        return np.float32(rate) * (mean / root + WEIGHT_DECAY * parameter)
