"""Monte Carlo tree search over decisions, as in ProTuner: only complete schedules are ever priced."""

from dataclasses import dataclass, replace

import numpy as np

from searchers.learning.exploring_learner import HistorySample, Learner
from searchers.learning.scorer import ScoredRows, Scorer
from searchers.learning.search_trees import Nodes
from searchers.learning.tree_rollouts import Rollouts, SketchTrees

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
        sketch = self._sketches(forest, tree, rng)
        parts = [Rollouts(trees, tree[sketch == at], rng) for at, trees in enumerate(forest)]
        views = [(part.trees.sketch, part.complete(self.curiosity, self.noise)) for part in parts]
        for part, sight in zip(parts, scout.look(views, ROLLOUT), strict=True):
            part.credit(self._told(sight))

    def _told(self, sight: ScoredRows) -> ScoredRows:
        return sight if self.learning else replace(sight, promise=np.zeros_like(sight.promise))

    def _sketches(self, forest: list[SketchTrees], tree: Nodes, rng: np.random.Generator) -> Nodes:
        total = np.sum([trees.nodes.root_visits() for trees in forest], axis=0)
        bounds = [trees.nodes.root_bound(len(forest), total, self.curiosity) for trees in forest]
        wanted = np.stack(bounds, axis=1)[tree]
        return np.asarray((wanted + self.noise * rng.gumbel(size=wanted.shape)).argmax(axis=1))
