"""Padded tables for networks: columns centred over the lines that are present, the rest zero."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.bagging import finite
from costmodels.base import Matrix
from costmodels.inputs import QUANTILES, WIDEST
from costmodels.views import View

Table = NDArray[np.float32]  # rows x lines x columns


def columns(view: View) -> int:
    """The number of columns that networks see."""
    return view.shape[1] * (1 + len(QUANTILES))


class Tables(NamedTuple):
    """The centre, scale and quantiles of each column; the first columns (structure) are kept as they are.

    After the view's columns come how far each is above its quantiles.
    """

    middle: NDArray[np.float32]
    deviation: NDArray[np.float32]
    knots: NDArray[np.float32]

    def of(self, features: Matrix, view: View, kept: int) -> Table:
        """The transformed rows, cut to the lines of the longest."""
        table = view.tables(finite(features))
        present = table[:, :, 0] > 0
        longest = int(np.max(np.flatnonzero(present.any(axis=0)), initial=0)) + 1
        present = present[:, :longest, None]
        raw = table[:, :longest]
        centred = np.clip((raw - self.middle) / self.deviation, -WIDEST, WIDEST)
        bent = [np.maximum(centred - knot, 0) for knot in self.knots]
        answer = np.where(present, np.concatenate([centred, *bent], axis=2), 0).astype(np.float32)
        answer[:, :, 0] = present[:, :, 0]
        answer[:, :, 1:kept] = np.where(present, raw[:, :, 1:kept], -1)
        return answer


def tables_of(features: Matrix, view: View) -> Tables:
    """The transformation that fits these rows; constant columns become zero."""
    table = view.tables(finite(features))
    lines = table[table[:, :, 0] > 0].astype(np.float64)
    if not len(lines):
        lines = np.zeros((1, view.shape[1]))
    middle, deviation = lines.mean(axis=0), lines.std(axis=0)
    deviation[deviation == 0] = np.inf
    knots = np.quantile((lines - middle) / deviation, QUANTILES, axis=0)
    return Tables(*(part.astype(np.float32) for part in (middle, deviation, knots)))
