"""Batches for learners that take gradient steps, and the gradient of their loss."""

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Vector
from costmodels.ranking import Scores, rank_push

Rows = NDArray[np.int64]


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
