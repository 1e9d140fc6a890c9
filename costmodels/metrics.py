"""How well scores order what was measured; rows of different groups are never compared."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Vector

Groups = NDArray[np.int64]


def pairwise_accuracy(scores: Vector, labels: Vector, groups: Groups, *, tie: float = 1e-3) -> float:
    """Share of pairs in the right order; label ties are skipped, score ties count half.

    NaN where no group holds two different labels.
    """
    right, pairs = 0.0, 0
    for lines in members(groups):
        faster, slower = np.nonzero(labels[lines][:, None] > labels[lines][None, :] + tie)
        gap = scores[lines][faster].astype(np.float64) - scores[lines][slower]
        right += float((gap > 0).sum() + 0.5 * (gap == 0).sum())
        pairs += len(gap)
    return right / pairs if pairs else float("nan")


def top_k_recall(scores: Vector, labels: Vector, groups: Groups, k: int) -> float:
    """Mean over groups of the share of the k fastest that are among the k best scored."""
    recalls = []
    for lines in members(groups):
        size = min(k, len(lines))
        fastest = np.argsort(-labels[lines], kind="stable")[:size]
        chosen = np.argsort(-scores[lines], kind="stable")[:size]
        recalls.append(len(np.intersect1d(fastest, chosen)) / size)
    return float(np.mean(recalls)) if recalls else float("nan")


def rmse(scores: Vector, labels: Vector) -> float:
    """Root of the mean squared difference, in log units."""
    return float(np.sqrt(np.mean((scores.astype(np.float64) - labels) ** 2)))


def members(groups: Groups) -> Iterator[NDArray[np.int64]]:
    """The rows of each group, in order."""
    for group in np.unique(groups):
        yield np.flatnonzero(groups == group).astype(np.int64)
