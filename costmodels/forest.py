"""A forest of random trees as flat arrays; the trees' disagreement is the spread of a score."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeRegressor

from costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from costmodels.ensemble_spread import (
    UNKNOWN,
    Weights,
    draws,
    finite,
    ignorant,
    importance,
    pooled,
    variance_share,
)
from costmodels.serialization import pack, unpack
from costmodels.views import check_rows


class Trees(NamedTuple):
    """Nodes of all trees in flat arrays with common numbers; a leaf is its own child."""

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]  # values not above it go left
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    def opinions(self, rows: Matrix) -> Matrix:
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


def as_trees(grown: Sequence[Any]) -> Trees:
    """Convert scikit-learn's trees into flat arrays."""
    trees = [estimator.tree_ for estimator in grown]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])]).astype(np.int32)
    sides = [_children(tree, root) for tree, root in zip(trees, roots, strict=True)]
    threshold = np.concatenate([tree.threshold for tree in trees])
    as_float32 = threshold.astype(np.float32)
    # Round down to float32: float32 features compare the same way with the rounded threshold.
    rounded = np.where(as_float32 > threshold, np.nextafter(as_float32, np.float32(-np.inf)), as_float32)
    return Trees(
        roots=roots,
        feature=np.concatenate([np.maximum(tree.feature, 0) for tree in trees]).astype(np.int32),
        threshold=rounded.astype(np.float32),
        left=np.concatenate([left for left, _ in sides]),
        right=np.concatenate([right for _, right in sides]),
        value=np.concatenate([tree.value[:, 0, 0] for tree in trees]).astype(np.float32),
    )


def _children(tree: Any, root: np.int32) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    own = np.arange(tree.node_count)
    leaf = tree.children_left < 0
    left = np.where(leaf, own, tree.children_left) + root
    right = np.where(leaf, own, tree.children_right) + root
    return left.astype(np.int32), right.astype(np.int32)


KIND = "forest"
MEMBERS = 32
PARAMETERS = {"max_features": 0.5, "min_samples_leaf": 2, "max_depth": 20}


class Forest(CostModel):
    """Extremely randomised trees, each fit on a bootstrap of the rows.

    Random thresholds give smooth scores from few rows, and larger spreads where rows are
    sparse.
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
        rows, weight = finite(features), importance(labels)
        drawn = draws(rng, len(labels), MEMBERS)
        self._trees = grown(rows, labels, drawn * weight, rng)
        share, rest = variance_share(self._trees.opinions(rows), labels, weight * (drawn == 0))
        self._share, self._noise = share, rest**0.5

    def predict(self, features: Matrix) -> Prediction:
        if self._trees is None:
            return ignorant(len(features))
        return pooled(self._trees.opinions(finite(features)), self._noise, self._share)

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


def grown(
    rows: Matrix, targets: Vector, weights: Weights, rng: np.random.Generator, **parameters: float
) -> Trees:
    """Fit one tree per line of `weights`, on rows with a weight above 0.

    `parameters` of scikit-learn's trees override the defaults.
    """
    trees = []
    for weight in weights:
        used = weight > 0
        seed = int(rng.integers(2**31))
        tree = ExtraTreeRegressor(**{**PARAMETERS, **parameters}, random_state=seed)
        trees.append(tree.fit(rows[used], targets[used], sample_weight=weight[used]))
    return as_trees(trees)
