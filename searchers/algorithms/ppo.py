"""Proximal policy optimisation over knob steps, as in Chameleon: each knob goes down, stays or goes up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchers.learning.exploring_learner import HistorySample
from searchers.learning.learned_parameters import LearnedParameters
from searchers.learning.moves import moves_of
from searchers.learning.ppo_actor import Actor
from searchers.learning.scorer import ScoredRows, Scorer
from searchers.learning.stateful_learner import StatefulLearner
from searchers.learning.trajectory import Trajectory

STEP = "step"


@dataclass(eq=False, kw_only=True)
class Ppo(StatefulLearner):
    """Many walkers step with all knobs at once; the policy learns which steps raise the model's score.

    After each rollout the policy is updated a fixed number of times, and the walkers restart from candidates
    seen so far, drawn as simulated annealing would. Policies and critics go on where the task's last round
    left them; walkers whose policies do not learn step at random.
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

    def study(
        self, lessons: LearnedParameters, scout: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> None:
        actors = {sight.sketch.key: self._actor(sight, lessons, rng) for sight in scout.memory()}
        for _ in range(max(1, (self.considered - len(scout)) // (self.walkers * self.horizon))):
            trails = [
                Trajectory(actors[s.sketch.key], s) for s in scout.starts(self.walkers, self.greed, rng)
            ]
            for _ in range(self.horizon):
                self._step(scout, trails, rng)
            for trail in trails if self.learning else ():
                experience = trail.experience(self.discount, self.trace)
                trail.actor.learn(experience, self.epochs, self.clip, self.entropy, rng)
        for sketch, actor in actors.items():
            lessons.keep(sketch, actor.lesson())

    def _actor(self, sight: ScoredRows, lessons: LearnedParameters, rng: np.random.Generator) -> Actor:
        actor = Actor(sight.features, len(moves_of(sight.sketch).knobs), self.rate, rng)
        if lesson := lessons.of(sight.sketch.key):
            actor.go_on(lesson)
        return actor

    def _step(self, scout: Scorer, trails: Sequence[Trajectory], rng: np.random.Generator) -> None:
        """One step of the walkers of every sketch."""
        views = [(trail.here.sketch, trail.decide(rng)) for trail in trails]
        for trail, there in zip(trails, scout.look(views, STEP), strict=True):
            trail.arrive(there)
