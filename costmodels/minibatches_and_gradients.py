"""Minibatches for gradient-based learners, and the gradient of their loss."""

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Vector

Scores = NDArray[np.floating]
Rows = NDArray[np.int64]


def rank_push(scores: Scores, labels: Scores) -> Scores:
    """Return the LambdaRank gradient for each score; each row of `scores` is one list.

    A wrongly ordered pair is weighted by how much swapping it changes the list's discounted
    gain. A candidate's gain is its speed relative to the best; its discount depends on its
    present rank.
    """
    gain = np.exp(labels)
    rank = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1, kind="stable")
    discount = 1 / np.log2(rank + 2)
    ideal = (-np.sort(-gain, axis=1) / np.log2(np.arange(scores.shape[1]) + 2)).sum(axis=1)
    swap = np.abs(_gaps(gain) * _gaps(discount)) / ideal[:, None, None]
    wrong = 1 / (1 + np.exp(np.clip(_gaps(scores), -30, 30)))  # probability that the faster, i, is second
    push = np.where(_gaps(labels) > 0, wrong * swap, 0)
    return np.asarray(push.sum(axis=1) - push.sum(axis=2), dtype=np.float32)


def _gaps(values: Scores) -> Scores:
    return values[:, :, None] - values[:, None, :]


def one_group_batches(
    groups: Rows, drawn: Rows, steps: int, size: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return row indices (steps x members x size); groups are drawn by size, one per batch."""
    _, dense = np.unique(groups, return_inverse=True)
    answer = np.empty((steps, len(drawn), size), dtype=np.int64)
    for member, counts in enumerate(drawn):
        rows = np.repeat(np.arange(len(groups)), counts)
        rows = rows[np.argsort(dense[rows], kind="stable")]
        chosen = dense[rng.choice(rows, steps)]
        first = np.searchsorted(dense[rows], chosen)[:, None]
        past = np.searchsorted(dense[rows], chosen, side="right")[:, None]
        positions = first + rng.random((steps, size)) * (past - first)
        answer[:, member] = rows[positions.astype(np.int64)]
    return answer


def push_of(scores: Scores, truth: Vector, weight: Vector, order: float) -> Scores:
    """Return the gradient of squared error plus `order` times LambdaRank; a row is a list."""
    value = weight * (scores - truth) / scores.shape[1]
    return np.asarray(value + np.float32(order) * rank_push(scores, truth), dtype=np.float32)
