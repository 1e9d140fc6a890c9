"""Random forests that predict labels, or the chance to be among a task's fastest (LFBO)."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeRegressor

from mallorn.costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.ensemble_spread import (
    UNKNOWN,
    Weights,
    bootstrap_counts,
    combine_member_scores,
    replace_nonfinite,
    untrained_prediction,
    weight_fast_rows,
)
from mallorn.costmodels.labels import is_time_label
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.serialization import pack, unpack
from mallorn.costmodels.views import check_rows

FEWEST_JUDGED = 8
LEAST_SHARE = 0.05  # not 0, so that rows unlike the training rows always have a larger spread


class Trees(NamedTuple):
    """Nodes of all trees in flat arrays, indexed by node number; a leaf is its own child."""

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]  # values not above it go left
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    def predict_per_tree(self, rows: Matrix) -> Matrix:
        """Return the value of every tree for every row of features (trees x rows)."""
        flat = np.ascontiguousarray(rows).ravel()
        node = np.repeat(self.roots, len(rows))
        start = np.tile(np.arange(len(rows), dtype=np.int64) * rows.shape[1], len(self.roots))
        walking = np.flatnonzero(self.left[node] != node)
        while len(walking):
            nodes = node[walking]
            smaller = flat[start[walking] + self.feature[nodes]] <= self.threshold[nodes]
            children = np.where(smaller, self.left[nodes], self.right[nodes])
            node[walking] = children
            walking = walking[self.left[children] != children]
        return self.value[node].reshape(len(self.roots), len(rows))


def as_trees(estimators: Sequence[Any]) -> Trees:
    """Convert scikit-learn's trees into flat arrays."""
    trees = [estimator.tree_ for estimator in estimators]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])]).astype(np.int32)
    left: list[NDArray[np.int32]] = []
    right: list[NDArray[np.int32]] = []
    for tree, root in zip(trees, roots, strict=True):
        own, is_leaf = np.arange(tree.node_count), tree.children_left < 0
        left.append((np.where(is_leaf, own, tree.children_left) + root).astype(np.int32))
        right.append((np.where(is_leaf, own, tree.children_right) + root).astype(np.int32))
    threshold = np.concatenate([tree.threshold for tree in trees])
    as_float32 = threshold.astype(np.float32)
    # Round down to float32: float32 features compare the same way with the rounded threshold.
    next_below = np.nextafter(as_float32, np.float32(-np.inf))
    return Trees(
        roots=roots,
        feature=np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int32),
        threshold=np.where(as_float32 > threshold, next_below, as_float32).astype(np.float32),
        left=np.concatenate(left),
        right=np.concatenate(right),
        value=np.concatenate([tree.value[:, 0, 0] for tree in trees]).astype(np.float32),
    )


KIND = "forest"
MEMBERS = 32
PARAMETERS = {"max_features": 0.5, "min_samples_leaf": 2, "max_depth": 20}


class Forest(CostModel):
    """Extremely randomised trees, each fit on a bootstrap of the rows.

    Random thresholds give smooth scores from few rows, and larger predicted deviations for
    candidates that are unlike the training rows.
    """

    def __init__(self) -> None:
        self._trees: Trees | None = None
        self._share, self._noise = 1.0, UNKNOWN

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._trees, self._share, self._noise = None, 1.0, UNKNOWN
        if not len(labels):
            return
        rng = np.random.default_rng(seed)
        rows, weight = replace_nonfinite(features), weight_fast_rows(labels)
        bootstraps = bootstrap_counts(rng, len(labels), MEMBERS)
        self._trees = grow_trees(rows, labels, bootstraps * weight, rng)
        self._share, self._noise = fit_error_to_variance(
            self._trees.predict_per_tree(rows), labels, weight * (bootstraps == 0)
        )

    def predict(self, features: Matrix) -> Prediction:
        if self._trees is None:
            return untrained_prediction(len(features))
        return combine_member_scores(
            self._trees.predict_per_tree(replace_nonfinite(features)), self._noise, self._share
        )

    def save(self) -> bytes:
        arrays = self._trees._asdict() if self._trees else {}
        return pack(KIND, {"noise": self._noise, "share": self._share}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> "Forest":
        numbers, arrays = unpack(KIND, blob)
        model = cls()
        model._noise, model._share = numbers["noise"], numbers["share"]
        model._trees = Trees(**arrays) if arrays else None
        return model


def grow_trees(
    rows: Matrix, targets: Vector, weights: Weights, rng: np.random.Generator, **parameters: float
) -> Trees:
    """Fit one tree per line of `weights`, on the rows whose weight is above 0. `parameters`
    override the defaults for scikit-learn's trees."""
    trees = []
    for weight in weights:
        has_weight = weight > 0
        seed = int(rng.integers(2**31))
        tree = ExtraTreeRegressor(**{**PARAMETERS, **parameters}, random_state=seed)
        trees.append(tree.fit(rows[has_weight], targets[has_weight], sample_weight=weight[has_weight]))
    return as_trees(trees)


GAMMA: Final = 0.1  # share of a task's rows that count as fast
LEAST_SLOPE: Final = 0.02  # positive, so that the order of scores is kept


class LFBO(CostModel):
    """Random trees that predict whether a candidate is among the fastest tenth of its task.

    Every row is an example of "slow" with weight 1. Rows of the fastest tenth are also
    examples of "fast", weighted by their gain over the slowest of that tenth. So the
    predicted probability ranks candidates by expected improvement; it does not rank slow
    candidates. A linear fit on left-out rows maps probabilities to labels.
    """

    KIND: ClassVar[str] = "lfbo"

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._parts: tuple[Trees, ...] = ()
        self._slope, self._offset, self._share, self._noise = 1.0, 0.0, 1.0, UNKNOWN

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._forget()
        if not len(labels):
            return
        rng, rows = np.random.default_rng(seed), replace_nonfinite(features)
        bootstraps = bootstrap_counts(rng, len(labels), MEMBERS)
        self._parts = self._grow_parts(rows, labels, groups, bootstraps, rng)
        unseen = (bootstraps == 0).astype(np.float64)
        self._slope, self._offset = fit_line(self._raw(rows), labels, weight_fast_rows(labels) * unseen)
        scores = self._calibrated_tree_scores(rows)
        self._share, self._noise = fit_error_to_variance(scores, labels, unseen)

    def _grow_parts(
        self, rows: Matrix, labels: Vector, groups: Groups, bootstraps: Groups, rng: np.random.Generator
    ) -> tuple[Trees, ...]:
        targets, weights = fast_row_targets_and_weights(labels, groups)
        return (grow_trees(rows, targets, bootstraps * weights, rng),)

    def _raw(self, rows: Matrix) -> Matrix:
        return self._parts[0].predict_per_tree(rows)

    def _calibrated_tree_scores(self, rows: Matrix) -> NDArray[np.float64]:
        return self._offset + self._slope * self._raw(rows).astype(np.float64)

    def predict(self, features: Matrix) -> Prediction:
        if not self._parts:
            return untrained_prediction(len(features))
        return combine_member_scores(
            self._calibrated_tree_scores(replace_nonfinite(features)), self._noise, self._share
        )

    def save(self) -> bytes:
        numbers = {"slope": self._slope, "offset": self._offset, "share": self._share, "noise": self._noise}
        arrays: dict[str, NDArray[Any]] = {
            f"{index}.{name}": array
            for index, trees in enumerate(self._parts)
            for name, array in trees._asdict().items()
        }
        return pack(self.KIND, {**numbers, "parts": len(self._parts)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        model = cls()
        model._slope, model._offset = numbers["slope"], numbers["offset"]
        model._share, model._noise = numbers["share"], numbers["noise"]
        model._parts = tuple(
            Trees(*(arrays[f"{index}.{name}"] for name in Trees._fields)) for index in range(numbers["parts"])
        )
        return model


def fast_row_targets_and_weights(labels: Vector, groups: Groups) -> tuple[Vector, Weights]:
    """Return LFBO's training targets (whether a row is fast) and weights of rows.

    The gain of a fast row is its label minus that of the slowest fast row of its group.
    Gains are scaled to mean 1 in each group, so that they count like a vote for "slow".
    """
    gain = np.zeros(len(labels))
    for lines in iterate_group_rows(groups):
        with_time = lines[is_time_label(labels[lines])]
        if len(with_time):
            least = np.quantile(labels[with_time].astype(np.float64), 1 - GAMMA)
            gain[with_time] = np.maximum(0.0, labels[with_time] - least)
            fast = with_time[gain[with_time] > 0]
            gain[fast] /= gain[fast].mean() if len(fast) else 1.0
    return (gain / (1 + gain)).astype(np.float32), 1 + gain


def fit_line(raw: Matrix, labels: Vector, left_out: Weights) -> tuple[float, float]:
    """Fit a line from scores to labels; return its slope and offset.

    A row's score is the mean of the members that were not trained on it (`left_out`).
    """
    rows = np.flatnonzero(left_out.any(axis=0))
    if len(rows) < FEWEST_JUDGED:
        return 1.0, float(np.mean(labels - raw.mean(axis=0)))
    unseen, weight = (left_out > 0)[:, rows], left_out.max(axis=0)[rows]
    mean_score = (raw[:, rows] * unseen).sum(axis=0) / unseen.sum(axis=0)
    truth = labels[rows].astype(np.float64)
    (variance, covariance), _ = np.cov(mean_score, truth, aweights=weight, ddof=0)
    slope = max(LEAST_SLOPE, float(covariance / variance)) if variance else 1.0
    return slope, float(np.average(truth - slope * mean_score, weights=weight))


SHARPNESS: Final = 4.0  # a row that is twice as slow counts a sixteenth
LEAST: Final = 0.02  # least weight, relative to the best row's
CHANCE: Final = 0.3  # label units added for a probability of 1 of being among the fastest


class ForestPlusLFBO(LFBO):
    """Random trees that predict labels, plus trees that predict the chance to be fast.

    The label trees give slow rows low weights. They rank all candidates, which guides a
    search far from the best; the trees of `lfbo` rank the fastest candidates.
    """

    KIND: ClassVar[str] = "headfirst"

    def _grow_parts(
        self, rows: Matrix, labels: Vector, groups: Groups, bootstraps: Groups, rng: np.random.Generator
    ) -> tuple[Trees, ...]:
        sharp = np.exp(SHARPNESS * labels.astype(np.float64)) + LEAST
        speed = grow_trees(rows, labels, bootstraps * sharp, rng, min_samples_leaf=1)
        return (speed, *super()._grow_parts(rows, labels, groups, bootstraps, rng))

    def _raw(self, rows: Matrix) -> Matrix:
        speed, chance = (trees.predict_per_tree(rows) for trees in self._parts)
        return speed + np.float32(CHANCE) * chance


def fit_error_to_variance(
    scores: NDArray[np.floating[Any]], labels: Vector, left_out: Weights
) -> tuple[float, float]:
    """Return `share` and `noise`: share * variance + noise**2 fits squared errors.

    The variance is that of the members' scores of a row; the error is that of the mean
    score of the members that were not trained on it.
    """
    rows = np.flatnonzero(left_out.any(axis=0))
    if len(rows) < FEWEST_JUDGED:
        return 1.0, UNKNOWN
    unseen, weight = (left_out > 0)[:, rows], left_out.max(axis=0)[rows]
    mean_score = (scores[:, rows] * unseen).sum(axis=0) / unseen.sum(axis=0)
    error, variance = (mean_score - labels[rows]) ** 2, scores[:, rows].var(axis=0, ddof=1)
    mean_variance = np.average(variance, weights=weight)
    variation = np.average((variance - mean_variance) ** 2, weights=weight)
    covariance = np.average((variance - mean_variance) * error, weights=weight)
    share = float(np.clip(covariance / variation, LEAST_SHARE, 1.0)) if variation else 1.0
    return share, max(0.0, float(np.average(error, weights=weight) - share * mean_variance)) ** 0.5
