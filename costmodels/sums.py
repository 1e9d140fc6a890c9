"""Statements of many candidates, one below the other, and losses of what adds up over a candidate."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.bagging import finite
from costmodels.base import Matrix
from costmodels.boosters import Push
from costmodels.metrics import members
from costmodels.ranking import rank_push
from costmodels.views import STATEMENTS

LISTED: Final = 16  # rows of a group that are ordered together

Indices = NDArray[np.int64]
Column = NDArray[np.float64]


class Lines(NamedTuple):
    """The statements of all rows, and the row that each is of."""

    features: Matrix
    row: Indices
    rows: int

    def sums(self, values: NDArray[Any]) -> Column:
        """What the statements of each row add up to."""
        return np.asarray(np.bincount(self.row, values, minlength=self.rows), dtype=np.float64)


def lines_of(features: Matrix) -> Lines:
    """Only the statements that are present."""
    tables = STATEMENTS.tables(finite(features))
    row, line = np.nonzero(tables[:, :, 0] > 0)
    return Lines(tables[row, line, 1:], row.astype(np.int64), len(features))


def by_value(lines: Lines, scores: NDArray[Any], goal: Column, weight: Column) -> Push:
    """The squared error of sums. All statements of a row step at once, so each takes its part of the step."""
    slope = weight * (lines.sums(scores) - goal)
    bend = weight * np.bincount(lines.row, minlength=lines.rows)
    return slope[lines.row], bend[lines.row]


def by_order(
    lines: Lines, scores: NDArray[Any], goal: Column, groups: Indices, rng: np.random.Generator
) -> Column:
    """How LambdaRank pushes each row, in lists of its group's rows that are drawn anew."""
    sums, push = lines.sums(scores), np.zeros(lines.rows)
    for listed in lists(groups, rng):
        push[listed] = rank_push(sums[listed], goal[listed])
    return push


def lists(groups: Indices, rng: np.random.Generator) -> Iterator[Indices]:
    """Rows of one group each, equally long lists stacked; what is left of a group is a list of its own."""
    full: list[Indices] = []
    for rows in members(groups):
        dealt = rng.permutation(rows)
        whole = len(dealt) // LISTED * LISTED
        full.append(dealt[:whole].reshape(-1, LISTED))
        if len(dealt) > whole + 1:
            yield dealt[None, whole:]
    yield np.concatenate(full)
