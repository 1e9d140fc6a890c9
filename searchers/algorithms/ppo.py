"""Proximal policy optimisation over knob steps, as in Chameleon: each knob goes down, stays or goes up."""

from dataclasses import dataclass

import numpy as np

from costmodels.base import Indices
from searchers.learning.exploring_learner import HistorySample
from searchers.learning.learned_parameters import LearnedParameters
from searchers.learning.moves import STAY, moves_of
from searchers.learning.ppo_actor import Actor, Experience
from searchers.learning.replay_buffer import reward
from searchers.learning.scorer import ScoredRows, Scorer
from searchers.learning.serial_matmul import Array
from searchers.learning.stateful_learner import StatefulLearner
from searchers.tile_factorizations import Rows

SMALLEST_SPREAD = 1e-6


class Trajectory:
    """Walkers of one sketch and one policy, step by step."""

    def __init__(self, actor: Actor, start: ScoredRows) -> None:
        self.actor = actor
        self._seen = [start]
        self._actions: list[Indices] = []
        self._chances: list[Array] = []

    @property
    def here(self) -> ScoredRows:
        return self._seen[-1]

    def decide(self, rng: np.random.Generator) -> Rows:
        """Let the policy act, and return the rows that this leads to."""
        action, chance = self.actor.act(self.here.features, rng)
        self._actions.append(action)
        self._chances.append(chance)
        moves = moves_of(self.here.sketch)
        rows = self.here.rows
        for (down, up), wanted in zip(moves.knobs, action.T, strict=True):
            rows = moves.apply(rows, np.array([down, STAY, up])[wanted])
        return rows

    def arrive(self, there: ScoredRows) -> None:
        """Move to where the last decision led."""
        self._seen.append(there)

    def experience(self, discount: float, trace: float) -> Experience:
        """All steps of all walkers, with normalised advantages."""
        promise = np.stack([sight.promise for sight in self._seen])
        values = np.stack([self.actor.value(sight.features) for sight in self._seen])
        gain = advantages(reward(np.diff(promise, axis=0)), values, discount, trace)
        lead = (gain - gain.mean()) / max(SMALLEST_SPREAD, float(gain.std()))
        return Experience(
            np.concatenate([sight.features for sight in self._seen[:-1]]),
            np.concatenate(self._actions),
            np.concatenate(self._chances),
            lead.reshape(-1),
            (values[:-1] + gain).reshape(-1),
        )


def advantages(rewards: Array, values: Array, discount: float, trace: float) -> Array:
    """Generalised advantage estimates (steps x walkers); `values` has one step more than `rewards`."""
    surprise = rewards + discount * values[1:] - values[:-1]
    ahead = np.zeros_like(surprise)
    for at in reversed(range(len(surprise))):
        later = ahead[at + 1] if at + 1 < len(surprise) else 0.0
        ahead[at] = surprise[at] + discount * trace * later
    return ahead


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
                views = [(trail.here.sketch, trail.decide(rng)) for trail in trails]
                for trail, there in zip(trails, scout.look(views, STEP), strict=True):
                    trail.arrive(there)
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
