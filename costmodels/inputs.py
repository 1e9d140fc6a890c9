"""Features for networks and linear models: centred, scaled, with hinges at quantiles."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.bagging import finite
from costmodels.base import Matrix

QUANTILES: Final = (0.125, 0.375, 0.625, 0.85)
WIDEST: Final = 4.0  # deviations at which a feature is clipped


class Inputs(NamedTuple):
    """The columns that vary, standardised, and how far each is above some of its quantiles.

    The hinges let a small model follow the sharp limits of caches and unrolling.
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
    """The transformation that fits these rows."""
    rows = finite(features).astype(np.float64)
    deviation = rows.std(axis=0)
    columns = np.flatnonzero(deviation > 0)
    middle, deviation = rows.mean(axis=0)[columns], deviation[columns]
    knots = np.quantile((rows[:, columns] - middle) / deviation, QUANTILES, axis=0)
    return Inputs(columns, *(part.astype(np.float32) for part in (middle, deviation, knots)))
