"""Adam: steps scaled by each parameter's own gradient history."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

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
