"""Partial schedules in the feature view `decisions`, and the models that read them.

Decisions have the same order in all workloads: first the innermost level of every axis,
then categorical choices, then the other levels outwards, and last the compute locations. A
derived column (lanes, register tiles, footprints) is known as soon as all its inputs are
decided, which this order makes early.
"""

from abc import abstractmethod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import CostModel, Matrix, Vector
from mallorn.costmodels.decision_columns import (
    LISTED,
    REDUCTION,
    REDUCTION_AXES,
    REDUCTION_LEVELS,
    SHARED,
    SPATIAL,
    SPATIAL_AXES,
    SPATIAL_LEVELS,
    WIDTH,
    compute_derived_columns,
)

Steps = NDArray[np.int64]

_PLACE: Final = REDUCTION.stop + LISTED
_CHOICES: Final = slice(REDUCTION.stop, _PLACE)

_DERIVED_WIDTH: Final = compute_derived_columns(
    np.zeros((1, 1, SPATIAL_LEVELS), np.float32),
    np.zeros((1, 1, REDUCTION_LEVELS), np.float32),
    np.zeros((1, 1), np.float32),
).shape[1]
FIRST_DERIVED: Final[int] = WIDTH - _DERIVED_WIDTH
DERIVED: Final = slice(FIRST_DERIVED, WIDTH)


def spatial_column(axis: int, level: int) -> int:
    """Return the column of a spatial axis (0: last) and level (0: innermost). Axes and
    levels beyond the columns get the last one."""
    back = min(axis, SPATIAL_AXES - 1) * SPATIAL_LEVELS + min(level, SPATIAL_LEVELS - 1)
    return SPATIAL.stop - 1 - back


def reduction_column(axis: int, level: int) -> int:
    """Return the column of a reduction axis (0: last) and level (0: innermost), likewise."""
    back = min(axis, REDUCTION_AXES - 1) * REDUCTION_LEVELS + min(level, REDUCTION_LEVELS - 1)
    return REDUCTION.stop - 1 - back


def listed_column(index: int) -> int:
    """Return the column of a categorical choice, or the last if `index` is too large."""
    return min(REDUCTION.stop + index, _PLACE - 1)


def location_column(index: int) -> int:
    """Return the column of a compute location, or the last one if `index` is too large."""
    return min(_PLACE + index, FIRST_DERIVED - 1)


def _decision_step_of_columns() -> Steps:
    columns: list[int] = []  # of decisions, in the order in which decisions are made
    for level in range(SPATIAL_LEVELS):
        columns += [spatial_column(axis, level) for axis in range(SPATIAL_AXES)]
        if level < REDUCTION_LEVELS:
            columns += [reduction_column(axis, level) for axis in range(REDUCTION_AXES)]
        if not level:
            columns += range(REDUCTION.stop, _PLACE)
    columns += range(_PLACE, FIRST_DERIVED)
    steps = np.full(WIDTH, -1, dtype=np.int64)
    steps[columns] = np.arange(len(columns))
    for index, column in enumerate(columns):
        row = np.zeros((1, WIDTH), dtype=np.float32)
        row[0, column] = np.nan
        steps[DERIVED][np.isnan(derive_columns(row))[0]] = index
    return steps


def derive_columns(rows: Matrix) -> Matrix:
    spatial = rows[:, SPATIAL].reshape(-1, SPATIAL_AXES, SPATIAL_LEVELS)
    reduction = rows[:, REDUCTION].reshape(-1, REDUCTION_AXES, REDUCTION_LEVELS)
    return compute_derived_columns(spatial, reduction, rows[:, _CHOICES])


STEP: Final = _decision_step_of_columns()
"""The step after which each column is known; -1: before any decision."""

LAST: Final = int(STEP.max())

DECIDED: Final = np.arange(SHARED, FIRST_DERIVED)
"""The columns that hold decisions."""


def mask_undecided_columns(rows: Matrix, steps: Steps | int) -> Matrix:
    """Return partial schedules: the rows, with columns decided after step `steps` as NaN."""
    limit = np.broadcast_to(steps, len(rows))
    return np.where(limit[:, None] >= STEP, rows, np.float32(np.nan))


def continue_prefixes(
    rows: Matrix, donors: Matrix, steps: Steps, end_steps: Steps, rests: Steps
) -> tuple[Matrix, NDArray[np.bool_]]:
    """Return partial schedules continued: decisions from `steps` to `end_steps` are donors'.

    All rows belong to one sketch. The outermost levels (columns `rests`) get what remains
    of their axis's extent. The mask marks valid rows, in which the decided levels of each
    axis divide its extent. Callers must ignore columns decided after `end_steps`.
    """
    is_from_donor = (steps[:, None] < STEP) & (end_steps[:, None] >= STEP)
    new_rows = np.where(is_from_donor, donors, rows)
    inner = np.where(end_steps[:, None] >= STEP, new_rows, np.float32(0.0))
    inner[:, rests] = 0.0
    extents, inner_extents = _log_extents(rows), _log_extents(inner)
    new_rows[:, rests] = (extents - inner_extents).astype(np.float32)
    new_rows[:, DERIVED] = derive_columns(new_rows)
    return new_rows, (np.rint(np.exp2(extents)) % np.rint(np.exp2(inner_extents)) == 0).all(axis=1)


def find_outermost_columns(rows: Matrix) -> Steps:
    """Return per axis the column of the outermost level that rows of one sketch use."""
    is_used = (rows != 0).any(axis=0)
    answer: list[int] = []
    for part, levels in ((SPATIAL, SPATIAL_LEVELS), (REDUCTION, REDUCTION_LEVELS)):
        for first in range(part.start, part.stop, levels):
            axis = range(first, first + levels)
            answer.append(next((column for column in axis if is_used[column]), axis[-1]))
    return np.array(answer, dtype=np.int64)


def has_reproducible_columns(rows: Matrix) -> NDArray[np.bool_]:
    """Return a mask of rows whose derived columns can be recomputed from their decisions."""
    alike = np.isclose(derive_columns(rows), rows[:, DERIVED], atol=1e-3)
    return np.asarray(alike.all(axis=1))


def _log_extents(rows: Matrix) -> NDArray[np.float64]:
    spatial = rows[:, SPATIAL].reshape(len(rows), -1, SPATIAL_LEVELS)
    reduction = rows[:, REDUCTION].reshape(len(rows), -1, REDUCTION_LEVELS)
    return np.hstack([part.sum(axis=2, dtype=np.float64) for part in (spatial, reduction)])


class ProposesDecisions(CostModel):
    """A model of the view `decisions` from which schedules can be sampled decision by decision.

    Contract, in addition to that of CostModel
    - `rate_last_decision` takes rows whose open decisions are NaN, and rates the last decision of
      each, in one vectorised pass. Over rows that differ only in that decision,
      a softmax of the ratings gives the share of good schedules that took each.
    - Without training, all rows get the same rating.
    """

    @abstractmethod
    def rate_last_decision(self, features: Matrix) -> Vector:
        """Return per row the log-odds that a good schedule makes the same last decision."""


class ValuesPrefixes(CostModel):
    """A model of the view `decisions` that can also score partial schedules.

    Contract, in addition to that of CostModel
    - `value` takes rows whose open decisions are NaN, and returns the score of the best
      completion of each, in one vectorised pass.
    - The value of a row without NaN is the mean that `predict` returns for it.
    """

    @abstractmethod
    def score_prefixes(self, features: Matrix) -> Vector:
        """Return per row the score of its best completion."""
