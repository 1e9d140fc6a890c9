"""Monte Carlo tree search over decisions, as in ProTuner: only complete schedules are ever priced."""

from dataclasses import dataclass

import numpy as np

from workers.search.policy.forest import Nodes
from workers.search.policy.grove import Grove, Rollouts
from workers.search.policy.learner import Learner
from workers.search.policy.lessons import Lessons
from workers.search.policy.scout import Scout

ROLLOUT = "rollout"


@dataclass(eq=False, kw_only=True)
class Mcts(Learner):
    """Several trees; a rollout descends one by upper confidence bounds, adds a node and completes at random.

    Completions use options as frequent as among the best schedules seen so far. Rollouts are priced hundreds
    at a time; noise on the bounds keeps a batch from taking one path.
    """

    trees: int = 8
    batch: int = 256
    elite: int = 32
    greed: float = 20.0
    curiosity: float = 0.2
    noise: float = 0.03

    def explore(self, scout: Scout, lessons: Lessons, rng: np.random.Generator) -> None:
        groves = [Grove(sketch, self.trees) for sketch in scout.space.sketches]
        self._plant(groves, scout, rng)
        for _ in range(max(1, (self.considered - len(scout)) // self.batch)):
            self._take_up(groves, scout, rng)
            self._roll_out(groves, scout, rng)

    def _plant(self, groves: list[Grove], scout: Scout, rng: np.random.Generator) -> None:
        """Start every tree with the paths of its own draw of the best known candidates."""
        drawn = {s.sketch.key: s for s in scout.starts(self.elite * self.trees, self.greed, rng)}
        for grove in groves:
            if sight := drawn.get(grove.sketch.key):
                grove.plant(sight, rng.integers(self.trees, size=len(sight)))

    def _take_up(self, groves: list[Grove], scout: Scout, rng: np.random.Generator) -> None:
        drawn = {s.sketch.key: s for s in scout.starts(self.elite, self.greed, rng)}
        for grove in groves:
            if sight := drawn.get(grove.sketch.key):
                grove.take_up(sight.rows)

    def _roll_out(self, groves: list[Grove], scout: Scout, rng: np.random.Generator) -> None:
        """One batch of rollouts over all trees; the first decision of each is its sketch."""
        trees = np.arange(self.batch) % self.trees
        sketch = self._sketches(groves, trees, rng)
        parts = [Rollouts(grove, trees[sketch == at], rng) for at, grove in enumerate(groves)]
        views = [(part.grove.sketch, part.complete(self.curiosity, self.noise)) for part in parts]
        for part, sight in zip(parts, scout.look(views, ROLLOUT), strict=True):
            part.credit(sight)

    def _sketches(self, groves: list[Grove], trees: Nodes, rng: np.random.Generator) -> Nodes:
        total = np.sum([grove.forest.root_visits() for grove in groves], axis=0)
        bounds = [grove.forest.root_bound(len(groves), total, self.curiosity) for grove in groves]
        wanted = np.stack(bounds, axis=1)[trees]
        return np.asarray((wanted + self.noise * rng.gumbel(size=wanted.shape)).argmax(axis=1))
