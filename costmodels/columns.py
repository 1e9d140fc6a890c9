"""Which columns of the view `decisions` hold a candidate's tiles and listed choices.

A test compares these places with the features of a real sketch, so a moved column fails it.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Matrix

WIDTH: Final = 136
SHARED: Final = 57
SPATIAL_AXES, SPATIAL_LEVELS = 6, 5
REDUCTION_AXES, REDUCTION_LEVELS = 4, 3
LISTED: Final = 8

_REDUCTION: Final = SHARED + SPATIAL_AXES * SPATIAL_LEVELS
_LISTED: Final = _REDUCTION + REDUCTION_AXES * REDUCTION_LEVELS

LARGEST_LOG2: Final = 40.0

Column = NDArray[np.float64]


class Tiling(NamedTuple):
    """Extents, not their logarithms; the last axis is the vectorised one, the last level the innermost."""

    spatial: Column  # rows x axes x levels
    reduction: Column  # rows x axes x levels
    unroll: Column  # the largest body that is unrolled


def tiling(features: Matrix) -> Tiling:
    """The tiles in these rows; missing axes and levels have extent 1."""
    rows = np.nan_to_num(features, nan=0.0, posinf=LARGEST_LOG2, neginf=0.0).astype(np.float64)
    extents = np.exp2(np.clip(rows, 0.0, LARGEST_LOG2))
    return Tiling(
        spatial=extents[:, SHARED:_REDUCTION].reshape(-1, SPATIAL_AXES, SPATIAL_LEVELS),
        reduction=extents[:, _REDUCTION:_LISTED].reshape(-1, REDUCTION_AXES, REDUCTION_LEVELS),
        unroll=extents[:, _LISTED : _LISTED + LISTED].max(axis=1) - 1,
    )
