"""Monte Carlo tree search over decisions, as in ProTuner: only complete schedules are scored."""

from dataclasses import dataclass, replace

import numpy as np

from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.learning.exploring_learner import HistorySample, Learner, ScoredRows, Scorer
from mallorn.searchers.learning.knobs import Mask, frequency_logits, knobs_of, softmax
from mallorn.searchers.space import Sketch
from mallorn.searchers.tile_factorizations import Rows

Nodes = Indices

NOWHERE = -1


class SearchTrees:
    """Search trees over a sketch's decisions, as arrays of children, visits and results."""

    def __init__(self, trees: int, options: int) -> None:
        self._child = np.empty((0, options), dtype=np.int64)
        self.visits, self._total, self._best = np.zeros(0), np.zeros(0), np.zeros(0)
        self._size = 0
        self.roots = self._new(trees)

    def __len__(self) -> int:
        return self._size

    def get_or_create_children(self, nodes: Nodes, options: Indices) -> tuple[Nodes, Mask]:
        """Return each node's child for its option, created if missing, and if it is new.
        NOWHERE (no node) has no children."""
        is_node = nodes != NOWHERE
        child = np.where(is_node, self._child[nodes, options], NOWHERE)
        is_new = is_node & (child == NOWHERE)
        parents, inverse = np.unique(
            np.stack([nodes[is_new], options[is_new]], axis=1), axis=0, return_inverse=True
        )
        new = self._new(len(parents))
        self._child[parents[:, 0], parents[:, 1]] = new
        child[is_new] = new[inverse.reshape(-1)]
        return child, is_new

    def credit_paths(self, paths: Nodes, results: Column) -> None:
        """Add each result to the nodes of its path (a row of `paths`, padded by NOWHERE)."""
        line, level = np.nonzero(paths != NOWHERE)
        nodes, results = paths[line, level], results[line]
        np.add.at(self.visits, nodes, 1.0)
        np.add.at(self._total, nodes, results)
        np.maximum.at(self._best, nodes, results)

    def bound(self, nodes: Nodes, chances: Column, curiosity: float) -> Column:
        """Return the upper confidence bound of each option of the nodes. An option without
        visits has its parent's value. Few visits and high `chances` enlarge the bonus."""
        child = self._child[nodes]
        has_child = child != NOWHERE
        results = np.where(has_child, self._worth(child), self._worth(nodes)[:, None])
        visits = np.where(has_child, self.visits[child], 0.0)
        doubt = chances * np.sqrt(self.visits[nodes])[:, None] / (1.0 + visits)
        return np.asarray(results + curiosity * doubt)

    def root_bound(self, siblings: int, total: Column, curiosity: float) -> Column:
        """Return the upper confidence bound of every tree's root. `siblings` trees, one per
        sketch, share the `total` visits."""
        doubt = np.sqrt(total) / (1.0 + self.visits[self.roots]) / siblings
        return np.asarray(self._worth(self.roots) + curiosity * doubt)

    def _worth(self, nodes: Nodes) -> Column:
        mean = self._total[nodes] / np.maximum(1.0, self.visits[nodes])
        return np.where(self.visits[nodes] > 0, (mean + self._best[nodes]) / 2, 0.0)

    def _new(self, count: int) -> Nodes:
        while self._size + count > len(self.visits):
            growth = max(256, len(self.visits))
            self._child = np.pad(self._child, ((0, growth), (0, 0)), constant_values=NOWHERE)
            self.visits, self._total, self._best = (
                np.pad(column, (0, growth)) for column in (self.visits, self._total, self._best)
            )
        self._size += count
        return np.arange(self._size - count, self._size)


class SketchTrees:
    """The search trees of one sketch; each level of a tree is a decision (knob)."""

    def __init__(self, sketch: Sketch, trees: int) -> None:
        self.sketch = sketch
        self.knobs = knobs_of(sketch)
        self.nodes = SearchTrees(trees, self.knobs.most)
        self.count_options(np.empty((0, sketch.decision_count), dtype=np.int32))

    def count_options(self, rows: Rows) -> None:
        """Count the options in these rows; rollouts draw options by their frequency."""
        self.habit = frequency_logits(self.knobs, rows, np.ones(len(rows)))

    def add_paths(self, scored_rows: ScoredRows, tree: Nodes) -> None:
        """Add each scored candidate's full path and score to its tree (index in `tree`)."""
        path, places = [self.nodes.roots[tree]], self.knobs.option_indices(scored_rows.rows)
        for index in range(len(self.knobs)):
            path.append(self.nodes.get_or_create_children(path[-1], places[:, index])[0])
        self.nodes.credit_paths(np.stack(path, axis=1), np.exp(scored_rows.promise))


class Rollouts:
    """A batch of rollouts (random completions of schedules), each in a given tree."""

    def __init__(self, trees: SketchTrees, tree: Nodes, rng: np.random.Generator) -> None:
        self.trees, self._rng = trees, rng
        self._path = [trees.nodes.roots[tree]]

    def complete(self, curiosity: float, noise: float) -> Rows:
        """Descend by upper confidence bound, add one node, and complete rows randomly."""
        trees, node = self.trees, self._path[0]
        rows = trees.knobs.undecided_rows(len(node))
        for index in range(len(trees.knobs)):
            in_tree = (node != NOWHERE)[:, None]
            legal = trees.knobs.legal(index, rows)
            bound = trees.nodes.bound(node, softmax(trees.habit[index], legal), curiosity)
            draws = self._rng.gumbel(size=legal.shape)
            preference = np.where(in_tree, bound + noise * draws, trees.habit[index] + draws)
            options = np.where(legal, preference, -np.inf).argmax(axis=1)
            trees.knobs.set(index, rows, options)
            child, is_new = trees.nodes.get_or_create_children(node, options)
            self._path.append(child)
            node = np.where(is_new, NOWHERE, child)
        return rows

    def credit_results(self, scored_rows: ScoredRows) -> None:
        """Add each result to the nodes on its path, as speed relative to the best so far."""
        self.trees.nodes.credit_paths(np.stack(self._path, axis=1), np.exp(scored_rows.promise))


ROLLOUT = "rollout"


@dataclass(eq=False, kw_only=True)
class Mcts(Learner):
    """Rollouts descend a tree by upper confidence bounds, add a node, then finish randomly.

    Completions draw options by their frequency among the best schedules so far. Rollouts
    are scored in batches of hundreds; noise on the bounds makes their paths differ. With
    `learning` off, trees do not store scores, so that only visits determine the descent.
    """

    trees: int = 8
    batch: int = 256
    elite: int = 32
    greed: float = 20.0
    curiosity: float = 0.2
    noise: float = 0.03

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        forest = [SketchTrees(sketch, self.trees) for sketch in scorer.space.sketches]
        by_key = {trees.sketch.key: trees for trees in forest}
        # Start every tree with the paths of its own random draw of the best scored candidates.
        for start in scorer.draw_start_rows(self.elite * self.trees, self.greed, rng):
            own_tree = rng.integers(self.trees, size=len(start))
            by_key[start.sketch.key].add_paths(self._scores_to_store(start), own_tree)
        for _ in range(max(1, (self.considered - len(scorer)) // self.batch)):
            for start in scorer.draw_start_rows(self.elite, self.greed, rng):
                by_key[start.sketch.key].count_options(start.rows)

            # Run one batch of rollouts over all trees; the first decision of each is its sketch.
            tree = np.arange(self.batch) % self.trees
            total = np.sum([trees.nodes.visits[trees.nodes.roots] for trees in forest], axis=0)
            bounds = [trees.nodes.root_bound(len(forest), total, self.curiosity) for trees in forest]
            tree_bounds = np.stack(bounds, axis=1)[tree]
            sketch = (tree_bounds + self.noise * rng.gumbel(size=tree_bounds.shape)).argmax(axis=1)
            parts = [Rollouts(trees, tree[sketch == index], rng) for index, trees in enumerate(forest)]
            views = [(part.trees.sketch, part.complete(self.curiosity, self.noise)) for part in parts]
            for part, scored_rows in zip(parts, scorer.score_rows(views, ROLLOUT), strict=True):
                part.credit_results(self._scores_to_store(scored_rows))

    def _scores_to_store(self, scored_rows: ScoredRows) -> ScoredRows:
        if self.learning:
            return scored_rows
        return replace(scored_rows, promise=np.zeros_like(scored_rows.promise))
