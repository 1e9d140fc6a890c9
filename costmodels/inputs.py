"""Features as networks and linear models want them: centred, of one scale, and bent at their edges."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.bagging import finite
from costmodels.base import Matrix

QUANTILES: Final = (0.125, 0.375, 0.625, 0.85)
WIDEST: Final = 4.0  # deviations of a feature; beyond them nothing was learned


class Inputs(NamedTuple):
    """The columns that vary, at mean 0 and deviation 1, and how far each is above a few of its quantiles.

    A small model bends only where its inputs do: caches and unrolling have edges.
    """

    columns: NDArray[np.int64]
    middle: NDArray[np.float32]
    deviation: NDArray[np.float32]
    knots: NDArray[np.float32]

    def of(self, features: Matrix) -> Matrix:
        rows = (finite(features[:, self.columns]) - self.middle) / self.deviation
        rows = np.clip(rows, -WIDEST, WIDEST).astype(np.float32)
        return np.hstack([rows, *(np.maximum(rows - knot, 0) for knot in self.knots)])


def inputs_of(features: Matrix) -> Inputs:
    """What to do with rows like these."""
    rows = finite(features).astype(np.float64)
    deviation = rows.std(axis=0)
    columns = np.flatnonzero(deviation > 0)
    middle, deviation = rows.mean(axis=0)[columns], deviation[columns]
    knots = np.quantile((rows[:, columns] - middle) / deviation, QUANTILES, axis=0)
    return Inputs(columns, *(part.astype(np.float32) for part in (middle, deviation, knots)))
