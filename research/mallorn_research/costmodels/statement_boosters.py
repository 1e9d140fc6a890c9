"""Boosted trees that score statements; a candidate's score is their sum (MetaSchedule)."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
import xgboost
from numpy.typing import NDArray

from mallorn.costmodels.base import Column, CostModel, Indices, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import (
    UNCALIBRATED,
    ScoreCalibration,
    bootstrap_counts,
    fit_calibration,
    replace_nonfinite,
    untrained_prediction,
    weight_fast_rows,
)
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.serialization import pack, unpack
from mallorn.costmodels.views import STATEMENTS, check_rows, check_width
from mallorn.costmodels.xgboost_models import MEMBERS, PARAMETERS, TREES, make_quantile_matrix, member_scores
from mallorn_research.costmodels.booster_arrays import as_arrays, from_arrays
from mallorn_research.costmodels.dense_layers import lambda_rank_gradient

LISTED: Final = 16  # rows per list of the ranking loss
Push = tuple[NDArray[Any], NDArray[Any]]  # gradient and hessian
Objective = Callable[[NDArray[Any], xgboost.DMatrix], Push]


class Lines(NamedTuple):
    """The statements of all rows (candidates), and the row to which each belongs."""

    features: Matrix
    row: Indices
    rows: int

    def sums(self, values: NDArray[Any]) -> Column:
        return np.asarray(np.bincount(self.row, values, minlength=self.rows), dtype=np.float64)


def lines_of(features: Matrix) -> Lines:
    tables = STATEMENTS.tables(replace_nonfinite(features))
    row, line = np.nonzero(tables[:, :, 0] > 0)
    return Lines(tables[row, line, 1:], row.astype(np.int64), len(features))


def squared_error_gradient(
    lines: Lines, scores: NDArray[Any], centered_labels: Column, weight: Column
) -> Push:
    """Return gradient and hessian, per statement, of the squared error of a row's sum.

    The hessian assumes that all statements of a row change by the same step.
    """
    slope = weight * (lines.sums(scores) - centered_labels)
    bend = weight * np.bincount(lines.row, minlength=lines.rows)
    return slope[lines.row], bend[lines.row]


def draw_group_lists(groups: Indices, rng: np.random.Generator) -> Iterator[Indices]:
    """Yield random lists of rows of one group, stacked by length.

    Lists have LISTED rows; a group's remainder of two or more rows is a list of its own.
    """
    full: list[Indices] = []
    for rows in iterate_group_rows(groups):
        shuffled = rng.permutation(rows)
        full_length = len(shuffled) // LISTED * LISTED
        full.append(shuffled[:full_length].reshape(-1, LISTED))
        if len(shuffled) > full_length + 1:
            yield shuffled[None, full_length:]
    yield np.concatenate(full)


ORDER: Final = 1.0  # weight of the ranking loss; the squared error has weight 1


class Statements(CostModel):
    """Bootstrapped boosters for statements, whose sum over a candidate is trained.

    The cost of statements is estimated from the cost of entire programs, so that new
    combinations of known statements are scored well.
    """

    KIND: ClassVar[str] = "statements"
    view: ClassVar[str] = STATEMENTS.name
    RANKS: ClassVar[bool] = False

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._boosters: list[xgboost.Booster] = []
        self._middle, self._calibration = 0.0, UNCALIBRATED

    def fit(self, features: Matrix, labels: Vector, groups: Indices, *, seed: int) -> None:
        check_rows(features, labels, groups)
        check_width(features, self.view)
        self._forget()
        lines = lines_of(features)
        if not len(lines.row):
            return
        rng, weight = np.random.default_rng(seed), weight_fast_rows(labels)
        self._middle = float(np.average(labels, weights=weight))
        data = make_quantile_matrix(lines.features, np.zeros(len(lines.row), dtype=np.float32))
        bootstraps = bootstrap_counts(rng, len(labels), MEMBERS)
        for counts in bootstraps:
            goal = self._make_objective(lines, labels, groups, counts * weight, rng)
            settings = {**PARAMETERS, "seed": int(rng.integers(2**31)), "base_score": 0.0}
            self._boosters.append(xgboost.train(settings, data, num_boost_round=TREES, obj=goal))
        self._calibration = fit_calibration(self._raw(lines), labels, bootstraps == 0, has_curve=self.RANKS)

    def _make_objective(
        self, lines: Lines, labels: Vector, groups: Indices, weight: Column, rng: np.random.Generator
    ) -> Objective:
        del groups, rng  # labels are relative to their group's best already
        goal = labels.astype(np.float64) - self._middle
        return lambda scores, _: squared_error_gradient(lines, scores, goal, weight)

    def _raw(self, lines: Lines) -> Column:
        scores = member_scores(self._boosters, lines.features) if len(lines.row) else np.empty((MEMBERS, 0))
        return self._middle + np.stack([lines.sums(member) for member in scores])

    def predict(self, features: Matrix) -> Prediction:
        if not self._boosters:
            return untrained_prediction(len(features))
        check_width(features, self.view)
        return self._calibration(self._raw(lines_of(features)))

    def save(self) -> bytes:
        numbers = {**self._calibration.numbers, "middle": self._middle, "members": len(self._boosters)}
        return pack(self.KIND, numbers, {**self._calibration.arrays(), **as_arrays(self._boosters)})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        model = cls()
        model._middle, model._calibration = numbers["middle"], ScoreCalibration.from_stored(numbers, arrays)
        model._boosters = from_arrays(arrays, numbers["members"], cls.KIND)
        return model


class StatementsRank(Statements):
    """`Statements` plus a LambdaRank loss, on lists of rows drawn anew for every tree."""

    KIND: ClassVar[str] = "statements-rank"
    RANKS: ClassVar[bool] = True

    def _make_objective(
        self, lines: Lines, labels: Vector, groups: Indices, weight: Column, rng: np.random.Generator
    ) -> Objective:
        goal = labels.astype(np.float64) - self._middle
        counts = weight / weight_fast_rows(labels)

        def objective(scores: NDArray[Any], _: xgboost.DMatrix) -> Push:
            slope, bend = squared_error_gradient(lines, scores, goal, weight)
            sums, push = lines.sums(scores), np.zeros(lines.rows)
            for rows in draw_group_lists(groups, rng):
                push[rows] = lambda_rank_gradient(sums[rows], goal[rows])
            return slope + ORDER * (counts * push)[lines.row], bend

        return objective
