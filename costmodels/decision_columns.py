"""Columns of the feature view `decisions`: tile sizes, categorical choices, derived columns.

A test compares the columns with the features of a real sketch. In the row of a partial
schedule, open decisions are NaN.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Column, Matrix

WIDTH: Final = 136
SHARED: Final = 57
SPATIAL_AXES, SPATIAL_LEVELS = 6, 5
REDUCTION_AXES, REDUCTION_LEVELS = 4, 3
LISTED: Final = 8

_REDUCED: Final = SHARED + SPATIAL_AXES * SPATIAL_LEVELS
_LIST: Final = _REDUCED + REDUCTION_AXES * REDUCTION_LEVELS
_PLACE: Final = _LIST + LISTED
SPATIAL: Final = slice(SHARED, _REDUCED)
REDUCTION: Final = slice(_REDUCED, _LIST)
_LISTED: Final = slice(_LIST, _PLACE)

LARGEST_LOG2: Final = 40.0


class Tiling(NamedTuple):
    """Tile extents (not log2). The last axis is vectorised; the last level is innermost."""

    spatial: Column  # rows x axes x levels
    reduction: Column  # rows x axes x levels
    unroll: Column  # the largest body that is unrolled


def read_tiling(features: Matrix) -> Tiling:
    """Return the tile extents in these rows; missing axes and levels have extent 1."""
    rows = np.nan_to_num(features, nan=0.0, posinf=LARGEST_LOG2, neginf=0.0).astype(np.float64)
    extents = np.exp2(np.clip(rows, 0.0, LARGEST_LOG2))
    return Tiling(
        spatial=extents[:, SPATIAL].reshape(-1, SPATIAL_AXES, SPATIAL_LEVELS),
        reduction=extents[:, REDUCTION].reshape(-1, REDUCTION_AXES, REDUCTION_LEVELS),
        unroll=extents[:, _LISTED].max(axis=1) - 1,
    )


def compute_derived_columns(spatial: Matrix, reduction: Matrix, choices: Matrix) -> Matrix:
    """Return derived columns: lanes, register tile, footprints, parallel extent, unrolling.

    `spatial` and `reduction` are rows x axes x levels of log2 extents, the innermost level
    last. A column is NaN if any of its inputs is NaN (undecided).
    """
    space = spatial.sum(axis=1)
    depth = reduction.sum(axis=1)
    inner = np.cumsum(space[:, ::-1], axis=1)  # log2 of the points within the 1, 2, ... innermost levels
    reduce = np.cumsum(depth[:, ::-1], axis=1)
    lane = spatial[:, -1:, -1:].sum(axis=(1, 2))
    lane2 = spatial[:, -1:, -2:].sum(axis=(1, 2))
    unroll = choices.max(axis=1, initial=0)
    body = inner[:, 0] + reduce[:, 0]
    columns = [
        *inner.T,
        *reduce.T,
        lane,
        lane2,
        inner[:, 0] - lane,  # rows of the register tile, without the vectorised axis
        _divisibility_by_power(lane, 2),
        _divisibility_by_power(lane, 3),
        _divisibility_by_power(lane, 4),
        space[:, 0] + space[:, 1],  # parallel extent, for four levels and for five
        inner[:, -1] - inner[:, 1],
        unroll,
        body,
        body - unroll,
        inner[:, 1] + reduce[:, 0],
        inner[:, 2] + reduce[:, 1],
        inner[:, 1] - reduce[:, 0],
        choices.sum(axis=1),
        np.minimum(body, unroll),
        np.heaviside(body - unroll, 0.0),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _divisibility_by_power(lane: NDArray[np.float32], exponent: int) -> Matrix:
    """Return 1 where 2**exponent divides the extent 2**lane, 0 elsewhere, NaN for NaN."""
    divides = np.rint(np.exp2(lane)) % (1 << exponent) == 0
    return np.where(np.isnan(lane), lane, divides.astype(np.float32))
