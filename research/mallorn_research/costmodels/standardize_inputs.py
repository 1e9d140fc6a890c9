"""Standardise features for networks: centre and scale columns, and add hinges at quantiles."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Matrix
from mallorn.costmodels.ensemble_spread import replace_nonfinite
from mallorn.costmodels.views import View

if TYPE_CHECKING:
    from torch import Tensor
from typing import Final

QUANTILES: Final = (0.125, 0.375, 0.625, 0.85)
WIDEST: Final = 4.0  # features are clipped at so many deviations


class HingeFeatures(NamedTuple):
    """Transforms rows: standardises varying columns, and appends their excess over quantiles.

    These hinges let a small model fit the sharp limits of caches and unrolling.
    """

    columns: NDArray[np.int64]
    middle: NDArray[np.float32]
    deviation: NDArray[np.float32]
    knots: NDArray[np.float32]

    def transform(self, features: Matrix) -> Matrix:
        rows = (replace_nonfinite(features[:, self.columns]) - self.middle) / self.deviation
        rows = np.clip(rows, -WIDEST, WIDEST).astype(np.float32)
        return np.hstack([rows, *(np.maximum(rows - knot, 0) for knot in self.knots)])


def fit_hinge_features(features: Matrix) -> HingeFeatures:
    """Return the centre, scale and quantiles of the columns that vary in these rows."""
    rows = replace_nonfinite(features).astype(np.float64)
    deviation = rows.std(axis=0)
    columns = np.flatnonzero(deviation > 0)
    middle, deviation = rows.mean(axis=0)[columns], deviation[columns]
    knots = np.quantile((rows[:, columns] - middle) / deviation, QUANTILES, axis=0)
    return HingeFeatures(columns, *(part.astype(np.float32) for part in (middle, deviation, knots)))


PARENT = 1  # column of the parent's line
Table = NDArray[np.float32]  # rows x lines x columns


def row_width(view: View) -> int:
    """Return the number of columns of a network's input for this view."""
    return view.shape[1] * (1 + len(QUANTILES))


class Tables(NamedTuple):
    """Standardises padded tables by each column's centre and scale.

    `of` keeps the structure columns, and appends each column's excess over its quantiles.
    """

    middle: NDArray[np.float32]
    deviation: NDArray[np.float32]
    knots: NDArray[np.float32]

    def standardize(self, features: Matrix, view: View, structure_columns: int) -> Table:
        """Standardise tables, except structure columns; cut them to the longest row."""
        table = view.tables(replace_nonfinite(features))
        present = table[:, :, 0] > 0
        longest = int(np.max(np.flatnonzero(present.any(axis=0)), initial=0)) + 1
        present = present[:, :longest, None]
        raw = table[:, :longest]
        centred = np.clip((raw - self.middle) / self.deviation, -WIDEST, WIDEST)
        bent = [np.maximum(centred - knot, 0) for knot in self.knots]
        answer = np.where(present, np.concatenate([centred, *bent], axis=2), 0).astype(np.float32)
        answer[:, :, 0] = present[:, :, 0]
        structure = slice(1, structure_columns)
        answer[:, :, structure] = np.where(present, raw[:, :, structure], -1)
        return answer


def fit_table_scaling(features: Matrix, view: View) -> Tables:
    """Return the transformation fit on these rows; it maps constant columns to zero."""
    table = view.tables(replace_nonfinite(features))
    lines = table[table[:, :, 0] > 0].astype(np.float64)
    if not len(lines):
        lines = np.zeros((1, view.shape[1]))
    middle, deviation = lines.mean(axis=0), lines.std(axis=0)
    deviation[deviation == 0] = np.inf
    knots = np.quantile((lines - middle) / deviation, QUANTILES, axis=0)
    return Tables(*(part.astype(np.float32) for part in (middle, deviation, knots)))


def parents_of(table: "Tensor") -> "Tensor":
    """Return the index of each line's parent line, or the number of lines for a root."""
    import torch

    lines = table.shape[1]
    is_used = table[:, :, 0] > 0
    parents = table[:, :, PARENT].round().clamp(-1, lines).long()
    is_earlier = (parents >= 0) & (parents < torch.arange(lines))
    is_valid = is_earlier & is_used & is_used.gather(1, parents.clamp(0, lines - 1))
    return torch.where(is_valid, parents, lines)


def depths_of(parents: "Tensor") -> "Tensor":
    """Return each line's number of ancestors."""
    import torch

    rows, lines = parents.shape
    depths = torch.full((rows, lines + 1), -1)
    for line in range(lines):
        depths[:, line] = depths.gather(1, parents[:, line : line + 1])[:, 0] + 1
    return depths[:, :lines]
