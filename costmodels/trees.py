"""Decision trees as flat arrays, stored and evaluated without the library that trained them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Matrix


class Trees(NamedTuple):
    """Nodes of all trees under one numbering; a leaf is its own child."""

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]  # values not above it go left
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    def opinions(self, rows: Matrix) -> Matrix:
        """The value of every tree (a row) for every row of features (a column)."""
        flat = np.ascontiguousarray(rows).ravel()
        node = np.repeat(self.roots, len(rows))
        start = np.tile(np.arange(len(rows), dtype=np.int64) * rows.shape[1], len(self.roots))
        walking = np.flatnonzero(self.left[node] != node)
        while len(walking):
            at = node[walking]
            smaller = flat[start[walking] + self.feature[at]] <= self.threshold[at]
            down = np.where(smaller, self.left[at], self.right[at])
            node[walking] = down
            walking = walking[self.left[down] != down]
        return self.value[node].reshape(len(self.roots), len(rows))


def as_trees(grown: Sequence[Any]) -> Trees:
    """Flatten scikit-learn's trees."""
    trees = [estimator.tree_ for estimator in grown]
    roots = np.cumsum([0, *(tree.node_count for tree in trees[:-1])]).astype(np.int32)
    sides = [_children(tree, root) for tree, root in zip(trees, roots, strict=True)]
    threshold = np.concatenate([tree.threshold for tree in trees])
    near = threshold.astype(np.float32)
    # The largest float32 not above each threshold: float32 features compare with it in the same way.
    rounded = np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)
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
