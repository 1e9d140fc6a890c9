"""Scales spreads so that four fifths of the labels lie within 1.28 of them."""

from typing import Final

import numpy as np

from costmodels.base import Prediction, Vector

SHARE: Final = 0.8
DEVIATIONS: Final = 1.2816  # of a normal distribution, on either side, that hold that share
LEAST_SPREAD: Final = 1e-3
WIDEST: Final = 10.0  # a larger factor means that the held-out rows are of another kind


def spread_factor(prediction: Prediction, labels: Vector) -> float:
    """The factor for spreads, from held-out rows; 1 if there are none."""
    if not len(labels):
        return 1.0
    off = np.abs(prediction.mean - labels) / np.maximum(prediction.std, LEAST_SPREAD)
    # With n rows the next one lies below the k-th of them with probability k / (n + 1).
    rank = min(len(off), int(np.ceil(SHARE * (len(off) + 1)))) - 1
    return float(np.clip(np.sort(off)[rank] / DEVIATIONS, 1 / WIDEST, WIDEST))


def scaled(prediction: Prediction, factor: float) -> Prediction:
    """The same scores with wider or narrower spreads."""
    mean, std = prediction
    return Prediction(mean, np.maximum(std * np.float32(factor), np.float32(LEAST_SPREAD)))
