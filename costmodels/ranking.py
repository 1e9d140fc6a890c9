"""LambdaRank: the gradient that moves the fastest candidates to the front."""

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating]


def rank_push(scores: Scores, labels: Scores) -> Scores:
    """The gradient of the loss by each score; each row of the matrix is one list.

    A pair in the wrong order is weighted by the change of the list's discounted gain if it were swapped. The
    gain of a candidate is its speed relative to the best; the discount depends on its present rank.
    """
    gain = np.exp(labels)
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable")
    discount = 1 / np.log2(rank + 2)
    ideal = (-np.sort(-gain, axis=1) / np.log2(np.arange(scores.shape[1]) + 2)).sum(axis=1)
    swap = np.abs(_gaps(gain) * _gaps(discount)) / ideal[:, None, None]
    wrong = 1 / (1 + np.exp(np.clip(_gaps(scores), -30, 30)))  # probability that i, the faster, comes second
    push = np.where(_gaps(labels) > 0, wrong * swap, 0)
    return np.asarray(push.sum(axis=1) - push.sum(axis=2), dtype=np.float32)


def _gaps(values: Scores) -> Scores:
    return values[:, :, None] - values[:, None, :]
