"""Statements of many candidates stacked in one table, and losses of their sums per candidate."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Column, Indices, Matrix
from costmodels.ensemble_spread import finite
from costmodels.metrics import members
from costmodels.minibatches_and_gradients import rank_push
from costmodels.views import STATEMENTS
from costmodels.xgboost_ensemble import Push

LISTED: Final = 16  # rows of a group that are ordered together


class Lines(NamedTuple):
    """The statements of all rows, and the row that each belongs to."""

    features: Matrix
    row: Indices
    rows: int

    def sums(self, values: NDArray[Any]) -> Column:
        """The sum over each row's statements."""
        return np.asarray(np.bincount(self.row, values, minlength=self.rows), dtype=np.float64)


def lines_of(features: Matrix) -> Lines:
    """Unpack padded rows into their statements."""
    tables = STATEMENTS.tables(finite(features))
    row, line = np.nonzero(tables[:, :, 0] > 0)
    return Lines(tables[row, line, 1:], row.astype(np.int64), len(features))


def by_value(lines: Lines, scores: NDArray[Any], goal: Column, weight: Column) -> Push:
    """The gradient of the squared error of sums; all statements of a row step together."""
    slope = weight * (lines.sums(scores) - goal)
    bend = weight * np.bincount(lines.row, minlength=lines.rows)
    return slope[lines.row], bend[lines.row]


def by_order(
    lines: Lines, scores: NDArray[Any], goal: Column, groups: Indices, rng: np.random.Generator
) -> Column:
    """LambdaRank's gradient by row, in lists drawn anew from its group."""
    sums, push = lines.sums(scores), np.zeros(lines.rows)
    for listed in lists(groups, rng):
        push[listed] = rank_push(sums[listed], goal[listed])
    return push


def lists(groups: Indices, rng: np.random.Generator) -> Iterator[Indices]:
    """Lists of one group each, those of equal length stacked; a group's remainder is a list of its own."""
    full: list[Indices] = []
    for rows in members(groups):
        dealt = rng.permutation(rows)
        whole = len(dealt) // LISTED * LISTED
        full.append(dealt[:whole].reshape(-1, LISTED))
        if len(dealt) > whole + 1:
            yield dealt[None, whole:]
    yield np.concatenate(full)
