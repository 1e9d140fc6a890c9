"""Monte Carlo tree search over decisions, as in ProTuner: only complete schedules are ever priced."""

from dataclasses import dataclass, replace

import numpy as np

from searchers.learning.exploring_learner import HistorySample, Learner
from searchers.learning.knob_distributions import counted, softmax
from searchers.learning.knobs import knobs_of
from searchers.learning.scorer import ScoredRows, Scorer
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
            inside = (node != NOWHERE)[:, None]
            legal = trees.knobs.legal(at, rows)
            bound = trees.nodes.bound(node, softmax(trees.habit[at], legal), curiosity)
            drawn = self._rng.gumbel(size=legal.shape)
            wanted = np.where(inside, bound + noise * drawn, trees.habit[at] + drawn)
            options = np.where(legal, wanted, -np.inf).argmax(axis=1)
            trees.knobs.set(at, rows, options)
            child, made = trees.nodes.step(node, options)
            self._path.append(child)
            node = np.where(made, NOWHERE, child)
        return rows

    def credit(self, sight: ScoredRows) -> None:
        """Add each result, as a share of the best speed, to the nodes on its path."""
        self.trees.nodes.credit(np.stack(self._path, axis=1), np.exp(sight.promise))


ROLLOUT = "rollout"


@dataclass(eq=False, kw_only=True)
class Mcts(Learner):
    """Several trees; a rollout descends one by upper confidence bounds, adds a node and completes at random.

    Completions use options as frequent as among the best schedules seen so far. Rollouts are priced hundreds
    at a time; noise on the bounds keeps a batch from taking one path. With `learning` off no price is put
    down in a tree, so visits alone say where to go.
    """

    trees: int = 8
    batch: int = 256
    elite: int = 32
    greed: float = 20.0
    curiosity: float = 0.2
    noise: float = 0.03
    learning: bool = True

    def explore(self, scout: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        forest = [SketchTrees(sketch, self.trees) for sketch in scout.space.sketches]
        # Start every tree with the paths of its own draw of the best known candidates.
        drawn = {s.sketch.key: s for s in scout.starts(self.elite * self.trees, self.greed, rng)}
        for trees in forest:
            if sight := drawn.get(trees.sketch.key):
                trees.plant(self._told(sight), rng.integers(self.trees, size=len(sight)))
        for _ in range(max(1, (self.considered - len(scout)) // self.batch)):
            self._take_up(forest, scout, rng)
            self._roll_out(forest, scout, rng)

    def _take_up(self, forest: list[SketchTrees], scout: Scorer, rng: np.random.Generator) -> None:
        drawn = {s.sketch.key: s for s in scout.starts(self.elite, self.greed, rng)}
        for trees in forest:
            if sight := drawn.get(trees.sketch.key):
                trees.take_up(sight.rows)

    def _roll_out(self, forest: list[SketchTrees], scout: Scorer, rng: np.random.Generator) -> None:
        """One batch of rollouts over all trees; the first decision of each is its sketch."""
        tree = np.arange(self.batch) % self.trees
        total = np.sum([trees.nodes.root_visits() for trees in forest], axis=0)
        bounds = [trees.nodes.root_bound(len(forest), total, self.curiosity) for trees in forest]
        wanted = np.stack(bounds, axis=1)[tree]
        sketch = (wanted + self.noise * rng.gumbel(size=wanted.shape)).argmax(axis=1)
        parts = [Rollouts(trees, tree[sketch == at], rng) for at, trees in enumerate(forest)]
        views = [(part.trees.sketch, part.complete(self.curiosity, self.noise)) for part in parts]
        for part, sight in zip(parts, scout.look(views, ROLLOUT), strict=True):
            part.credit(self._told(sight))

    def _told(self, sight: ScoredRows) -> ScoredRows:
        return sight if self.learning else replace(sight, promise=np.zeros_like(sight.promise))
