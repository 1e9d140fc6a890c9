"""Batches for learners that take gradient steps, and the gradient of their loss."""

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Vector

Scores = NDArray[np.floating]
Rows = NDArray[np.int64]


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


def one_group_batches(
    groups: Rows, drawn: Rows, steps: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Row indices by step, member and place; each batch is of one group, large groups more often."""
    _, dense = np.unique(groups, return_inverse=True)
    answer = np.empty((steps, len(drawn), size), dtype=np.int64)
    for member, counts in enumerate(drawn):
        met = np.repeat(np.arange(len(groups)), counts)
        met = met[np.argsort(dense[met], kind="stable")]
        chosen = dense[rng.choice(met, steps)]
        first = np.searchsorted(dense[met], chosen)[:, None]
        past = np.searchsorted(dense[met], chosen, side="right")[:, None]
        places = first + rng.random((steps, size)) * (past - first)
        answer[:, member] = met[places.astype(np.int64)]
    return answer


def push_of(scores: Scores, truth: Vector, weight: Vector, order: float) -> Scores:
    """The gradient of both losses by each score, lists being rows: squared error and LambdaRank."""
    value = weight * (scores - truth) / scores.shape[1]
    return np.asarray(value + np.float32(order) * rank_push(scores, truth), dtype=np.float32)
