"""The trees of one sketch, and rollouts that descend them and complete what they leave open."""

import numpy as np

from costmodels.base import Indices
from searchers.learning.knob_distributions import counted, softmax
from searchers.learning.knobs import knobs_of
from searchers.learning.scorer import ScoredRows
from searchers.learning.search_trees import NOWHERE, Nodes, SearchTrees
from searchers.space import Sketch
from searchers.tile_factorizations import Rows


class SketchTrees:
    """One tree per seed; each level is a knob of the sketch."""

    def __init__(self, sketch: Sketch, trees: int) -> None:
        self.sketch = sketch
        self.knobs = knobs_of(sketch)
        self.nodes = SearchTrees(trees, self.knobs.most)
        self.take_up(np.empty((0, sketch.width), dtype=np.int32))

    def take_up(self, rows: Rows) -> None:
        """Complete rollouts with option frequencies of these rows from now on."""
        self.habit = counted(self.knobs, rows, np.ones(len(rows)))

    def plant(self, sight: ScoredRows, tree: Nodes) -> None:
        """Add the whole paths of known candidates, each to its tree."""
        path, places = [self.nodes.roots[tree]], self.knobs.places(sight.rows)
        for at in range(len(self.knobs)):
            path.append(self.nodes.step(path[-1], places[:, at])[0])
        self.nodes.credit(np.stack(path, axis=1), np.exp(sight.promise))


class Rollouts:
    """Many descents at once, one per line, each in a given tree."""

    def __init__(self, trees: SketchTrees, tree: Nodes, rng: np.random.Generator) -> None:
        self.trees = trees
        self._rng = rng
        self._path = [trees.nodes.roots[tree]]

    def complete(self, curiosity: float, noise: float) -> Rows:
        """Descend by bound, add one node, and complete at random."""
        trees, node = self.trees, self._path[0]
        rows = trees.knobs.blank(len(node))
        for at in range(len(trees.knobs)):
            options = self._options(at, rows, node, curiosity, noise)
            trees.knobs.set(at, rows, options)
            child, made = trees.nodes.step(node, options)
            self._path.append(child)
            node = np.where(made, NOWHERE, child)
        return rows

    def credit(self, sight: ScoredRows) -> None:
        """Add each result, as a share of the best speed, to the nodes on its path."""
        self.trees.nodes.credit(np.stack(self._path, axis=1), np.exp(sight.promise))

    def _options(self, at: int, rows: Rows, node: Nodes, curiosity: float, noise: float) -> Indices:
        """Options by bound plus noise inside the tree, at random outside."""
        trees, inside = self.trees, (node != NOWHERE)[:, None]
        legal = trees.knobs.legal(at, rows)
        bound = trees.nodes.bound(node, softmax(trees.habit[at], legal), curiosity)
        drawn = self._rng.gumbel(size=legal.shape)
        wanted = np.where(inside, bound + noise * drawn, trees.habit[at] + drawn)
        return np.asarray(np.where(legal, wanted, -np.inf).argmax(axis=1))
