"""How well scores order the rows of each group; rows of different groups are never compared."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Groups, Vector

NAN = float("nan")
TIE: Final = 1e-3


class Pairs(NamedTuple):
    """Pairs within groups: share ranked correctly, number compared, number skipped as ties."""

    accuracy: float
    judged: int
    tied: int


def compare_pairs(scores: Vector, labels: Vector, groups: Groups) -> Pairs:
    """Compare the scores' order of each pair of rows of a group with the labels' order.

    Pairs whose labels differ by at most TIE are skipped; equal scores count half. Without
    pairs, the accuracy is NaN.
    """
    right, judged, all_pairs = 0.0, 0, 0
    for lines in iterate_group_rows(groups):
        faster, slower = np.nonzero(labels[lines][:, None] > labels[lines][None, :] + TIE)
        gap = scores[lines][faster].astype(np.float64) - scores[lines][slower]
        right += float((gap > 0).sum() + 0.5 * (gap == 0).sum())
        judged += len(gap)
        all_pairs += len(lines) * (len(lines) - 1) // 2
    return Pairs(right / judged if judged else NAN, judged, all_pairs - judged)


def pairwise_accuracy(scores: Vector, labels: Vector, groups: Groups) -> float:
    """Return the share of pairs ranked correctly; see `compare_pairs`."""
    return compare_pairs(scores, labels, groups).accuracy


def iterate_group_rows(groups: Groups) -> Iterator[NDArray[np.int64]]:
    for group in np.unique(groups):
        yield np.flatnonzero(groups == group).astype(np.int64)
