"""Proximal policy optimisation over knob steps, as in Chameleon: each knob goes down, stays or goes up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workers.search.policy.actor import Actor
from workers.search.policy.history_sample import HistorySample
from workers.search.policy.learner import Learner
from workers.search.policy.moves import moves_of
from workers.search.policy.scout import Scout
from workers.search.policy.trail import Trail

STEP = "step"


@dataclass(eq=False, kw_only=True)
class Ppo(Learner):
    """Many walkers step with all knobs at once; the policy learns which steps raise the model's score.

    After each rollout the policy is updated a fixed number of times, and the walkers restart from candidates
    seen so far, drawn as simulated annealing would.
    """

    walkers: int = 128
    horizon: int = 4
    greed: float = 2.0
    epochs: int = 3
    rate: float = 5e-3
    discount: float = 0.9
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01

    def explore(self, scout: Scout, sample: HistorySample, rng: np.random.Generator) -> None:
        actors = {
            sight.sketch.key: Actor(sight.features, len(moves_of(sight.sketch).knobs), self.rate, rng)
            for sight in scout.memory()
        }
        for _ in range(max(1, (self.considered - len(scout)) // (self.walkers * self.horizon))):
            trails = [Trail(actors[s.sketch.key], s) for s in scout.starts(self.walkers, self.greed, rng)]
            for _ in range(self.horizon):
                self._step(scout, trails, rng)
            for trail in trails:
                experience = trail.experience(self.discount, self.trace)
                trail.actor.learn(experience, self.epochs, self.clip, self.entropy, rng)

    def _step(self, scout: Scout, trails: Sequence[Trail], rng: np.random.Generator) -> None:
        """One step of the walkers of every sketch."""
        views = [(trail.here.sketch, trail.decide(rng)) for trail in trails]
        for trail, there in zip(trails, scout.look(views, STEP), strict=True):
            trail.arrive(there)
