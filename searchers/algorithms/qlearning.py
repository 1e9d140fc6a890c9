"""Q-learning over directions, as in FlexTensor: learns which small steps pay where."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from searchers.base import WALK
from searchers.decision_features import decision_rows, places_by_sketch
from searchers.learning.exploring_learner import HistorySample
from searchers.learning.learned_parameters import LearnedParameters
from searchers.learning.moves import moves_of
from searchers.learning.q_values import QValues
from searchers.learning.replay_buffer import measured_steps
from searchers.learning.scorer import ScoredRows, Scorer
from searchers.learning.stateful_learner import StatefulLearner


@dataclass(eq=False, kw_only=True)
class QLearning(StatefulLearner):
    """Walkers start as simulated annealing would, and step in the direction of the highest value.

    The value of a direction is learnt from measured steps of the history and from this round's steps,
    rewarded by the model. A share of the steps is random; it shrinks during the round. Networks go on
    where the task's last round left them. Without learning all steps are random.
    """

    walkers: int = 128
    walk: int = 4
    greed: float = 2.0
    epsilon: tuple[float, float] = (0.8, 0.1)
    discount: float = 0.7
    updates: int = 24
    rate: float = 5e-3

    def study(
        self, lessons: LearnedParameters, scout: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> None:
        values = self._values(lessons, scout, sample, rng)
        rounds = max(1, (self.considered - len(scout)) // (self.walkers * self.walk))
        for epsilon in np.geomspace(*(self.epsilon if self.learning else (1.0, 1.0)), num=rounds):
            walkers = scout.starts(self.walkers, self.greed, rng)
            for _ in range(self.walk):
                walkers = self._step(scout, walkers, values, float(epsilon), rng)
            for walker in walkers if self.learning else ():
                updates = round(self.updates * len(walker) / self.walkers)
                values[walker.sketch.key].learn(updates, self.discount, rng)
        for sketch, learned in values.items():
            lessons.keep(sketch, learned.lesson())

    def _values(
        self, lessons: LearnedParameters, scout: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> dict[str, QValues]:
        """The values of each sketch seen, with measured steps in the replay."""
        values: dict[str, QValues] = {}
        places = places_by_sketch([candidate.sketch for candidate in sample.candidates])
        for sight in scout.memory():
            moves, lines = moves_of(sight.sketch), places.get(sight.sketch.key, [])
            rows = decision_rows(sight.sketch, sample.candidates, lines)
            features = scout.space.features([sample.candidates[at] for at in lines])
            steps = measured_steps(moves, rows, features, sample.label[lines])
            values[sight.sketch.key] = QValues(moves, sight.features, steps, self.rate, rng)
            if lesson := lessons.of(sight.sketch.key):
                values[sight.sketch.key].go_on(lesson)
        return values

    def _step(
        self,
        scout: Scorer,
        walkers: Sequence[ScoredRows],
        values: dict[str, QValues],
        epsilon: float,
        rng: np.random.Generator,
    ) -> list[ScoredRows]:
        """One step of the walkers of every sketch, kept for learning."""
        ways = [values[here.sketch.key].ways(here, epsilon, rng) for here in walkers]
        moved = [moves_of(h.sketch).apply(h.rows, way) for h, way in zip(walkers, ways, strict=True)]
        arrived = scout.look([(h.sketch, rows) for h, rows in zip(walkers, moved, strict=True)], WALK)
        for here, way, there in zip(walkers, ways, arrived, strict=True):
            values[here.sketch.key].remember(here, way, there)
        return arrived
