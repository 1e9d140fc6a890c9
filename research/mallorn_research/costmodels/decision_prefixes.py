"""Partial schedules in the feature view `decisions`, and the models that read them."""

from abc import abstractmethod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import CostModel, Matrix, Vector
from mallorn.costmodels.decision_columns import (
    DERIVED,
    FIRST_DERIVED,
    REDUCTION,
    REDUCTION_LEVELS,
    SHARED,
    SPATIAL,
    SPATIAL_LEVELS,
    STEP,
    Steps,
    derive_columns,
)

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
