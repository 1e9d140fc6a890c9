"""Adam: steps scaled by each parameter's own gradient history."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

DECAY, SQUARE_DECAY, TINY = 0.9, 0.99, 1e-8


class Adam:
    """Updates parameters in place against the given gradients."""

    def __init__(self, parameters: Sequence[Array], rate: float) -> None:
        self._parameters = parameters
        self._rate = rate
        self._mean = [np.zeros_like(parameter) for parameter in parameters]
        self._square = [np.zeros_like(parameter) for parameter in parameters]
        self._steps = 0

    def step(self, gradients: Sequence[Array]) -> None:
        """One bias-corrected step."""
        self._steps += 1
        rate = self._rate * np.sqrt(1 - SQUARE_DECAY**self._steps) / (1 - DECAY**self._steps)
        slots = zip(self._parameters, gradients, self._mean, self._square, strict=True)
        for parameter, gradient, mean, square in slots:
            mean += (1 - DECAY) * (gradient - mean)
            square += (1 - SQUARE_DECAY) * (gradient**2 - square)
            parameter -= rate * mean / (np.sqrt(square) + TINY)
