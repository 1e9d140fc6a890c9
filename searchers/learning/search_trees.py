"""Many search trees over the decisions of one sketch, as arrays."""

import numpy as np

from costmodels.base import Column, Indices
from searchers.learning.knobs import Mask

Nodes = Indices

NOWHERE = -1


class SearchTrees:
    """Nodes with one child per option, their visits and their results."""

    def __init__(self, trees: int, options: int) -> None:
        self._child = np.empty((0, options), dtype=np.int64)
        self._visits, self._total, self._best = np.zeros(0), np.zeros(0), np.zeros(0)
        self._size = 0
        self.roots = self._new(trees)

    def __len__(self) -> int:
        return self._size

    def step(self, nodes: Nodes, options: Indices) -> tuple[Nodes, Mask]:
        """The child of each node for its option, created if missing, and whether it is new.

        NOWHERE has no children.
        """
        inside = nodes != NOWHERE
        child = np.where(inside, self._child[nodes, options], NOWHERE)
        made = inside & (child == NOWHERE)
        parents, inverse = np.unique(
            np.stack([nodes[made], options[made]], axis=1), axis=0, return_inverse=True
        )
        new = self._new(len(parents))
        self._child[parents[:, 0], parents[:, 1]] = new
        child[made] = new[inverse.reshape(-1)]
        return child, made

    def credit(self, paths: Nodes, worth: Column) -> None:
        """Add a result to every node on each path (one per row, NOWHERE after its end)."""
        line, level = np.nonzero(paths != NOWHERE)
        nodes, worth = paths[line, level], worth[line]
        np.add.at(self._visits, nodes, 1.0)
        np.add.at(self._total, nodes, worth)
        np.maximum.at(self._best, nodes, worth)

    def bound(self, nodes: Nodes, chances: Column, curiosity: float) -> Column:
        """The upper confidence bound of each option: its worth plus a bonus for few visits.

        An option never taken counts as its parent; likelier options are tried sooner.
        """
        child = self._child[nodes]
        tried = child != NOWHERE
        worth = np.where(tried, self._worth(child), self._worth(nodes)[:, None])
        visits = np.where(tried, self._visits[child], 0.0)
        doubt = chances * np.sqrt(self._visits[nodes])[:, None] / (1.0 + visits)
        return np.asarray(worth + curiosity * doubt)

    def root_bound(self, siblings: int, total: Column, curiosity: float) -> Column:
        """The bound of every whole tree among those that share `total` visits."""
        doubt = np.sqrt(total) / (1.0 + self._visits[self.roots]) / siblings
        return np.asarray(self._worth(self.roots) + curiosity * doubt)

    def root_visits(self) -> Column:
        """The number of descents of each tree."""
        return np.asarray(self._visits[self.roots])

    def _worth(self, nodes: Nodes) -> Column:
        """The mean of a node's average result and its best."""
        mean = self._total[nodes] / np.maximum(1.0, self._visits[nodes])
        return np.where(self._visits[nodes] > 0, (mean + self._best[nodes]) / 2, 0.0)

    def _new(self, count: int) -> Nodes:
        while self._size + count > len(self._visits):
            more = max(256, len(self._visits))
            self._child = np.pad(self._child, ((0, more), (0, 0)), constant_values=NOWHERE)
            self._visits, self._total, self._best = (
                np.pad(column, (0, more)) for column in (self._visits, self._total, self._best)
            )
        self._size += count
        return np.arange(self._size - count, self._size)
