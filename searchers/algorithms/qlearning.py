"""Q-learning over directions, as in FlexTensor: predicts which small steps raise the score."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from costmodels.base import Indices
from searchers.base import WALK
from searchers.decision_features import decision_rows, places_by_sketch
from searchers.learning.dense_network import Array, DenseNetwork, Lesson
from searchers.learning.exploring_learner import HistorySample, ScoredRows, Scorer
from searchers.learning.moves import STAY, Moves, Transitions, joined, measured_steps, moves_of, reward
from searchers.learning.stateful_learner import LearnedParameters, StatefulLearner
from searchers.space import Matrix

HIDDEN = (64, 64)
BATCH = 128


class QValues:
    """A network for the value of directions: the reward plus the discounted best next value."""

    def __init__(
        self,
        moves: Moves,
        rows: Matrix,
        measured_transitions: Transitions,
        rate: float,
        rng: np.random.Generator,
    ) -> None:
        self._moves = moves
        self._network = DenseNetwork(rows, HIDDEN, len(moves), rate, rng)
        self._replay = [measured_transitions]

    def lesson(self) -> Lesson:
        """Return the network's parameters."""
        return self._network.lesson()

    def go_on(self, lesson: Lesson) -> None:
        """Load parameters from a lesson; ignore it if its shape differs."""
        self._network.go_on(lesson)

    def ways(self, start: ScoredRows, epsilon: float, rng: np.random.Generator) -> Indices:
        """Return per row the direction of highest value or, by chance, a random one."""
        if not len(self._moves):
            return np.full(len(start), STAY, dtype=np.int64)
        legal = self._moves.legal(start.rows)
        best = np.where(legal, self._network(start.features), -np.inf).argmax(axis=1)
        anywhere = np.where(legal, rng.random(legal.shape), -1.0).argmax(axis=1)
        return np.asarray(np.where(rng.random(len(start)) < epsilon, anywhere, best))

    def remember(self, start: ScoredRows, way: Indices, arrival: ScoredRows) -> None:
        """Add a step to the replay buffer, with its gain as reward."""
        gain = reward(arrival.promise - start.promise)
        steps = Transitions(start.features, way, gain, arrival.features, self._moves.legal(arrival.rows))
        self._replay.append(steps)

    def learn(self, updates: int, discount: float, rng: np.random.Generator) -> None:
        """Train on batches of the replay buffer, with targets from a copy of the network."""
        self._replay = [joined(self._replay)]
        frozen_network = deepcopy(self._network)
        for _ in range(updates if len(self._moves) and len(self._replay[0].way) else 0):
            steps = self._replay[0].drawn(rng, BATCH)
            next_values = np.where(steps.legal, frozen_network(steps.after), 0.0).max(axis=1, initial=0.0)
            self._fit(steps, steps.reward + discount * next_values)

    def _fit(self, steps: Transitions, targets: Array) -> None:
        line = np.arange(len(targets))

        def slope(outputs: Array) -> Array:
            error = np.zeros_like(outputs)
            error[line, steps.way] = (outputs[line, steps.way] - targets) / len(targets)
            return error

        self._network.learn(steps.state, slope)


@dataclass(eq=False, kw_only=True)
class QLearning(StatefulLearner):
    """Walkers start from good scored candidates, and step in the direction of best value.

    Values are trained on measured steps of the history, and on this round's steps with the
    model's score as reward. A share of the steps is random; it shrinks during the round.
    Networks continue from the task's last round. With `learning` off, all steps are random.
    """

    walkers: int = 128
    walk: int = 4
    greed: float = 2.0
    epsilon: tuple[float, float] = (0.8, 0.1)
    discount: float = 0.7
    updates: int = 24
    rate: float = 5e-3

    def study(
        self, lessons: LearnedParameters, scorer: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> None:
        values = self._values(lessons, scorer, sample, rng)
        rounds = max(1, (self.considered - len(scorer)) // (self.walkers * self.walk))
        for epsilon in np.geomspace(*(self.epsilon if self.learning else (1.0, 1.0)), num=rounds):
            walkers = scorer.starts(self.walkers, self.greed, rng)
            for _ in range(self.walk):
                walkers = self._step(scorer, walkers, values, float(epsilon), rng)
            for walker in walkers if self.learning else ():
                updates = round(self.updates * len(walker) / self.walkers)
                values[walker.sketch.key].learn(updates, self.discount, rng)
        for sketch, q_values in values.items():
            lessons.keep(sketch, q_values.lesson())

    def _values(
        self, lessons: LearnedParameters, scorer: Scorer, sample: HistorySample, rng: np.random.Generator
    ) -> dict[str, QValues]:
        """Return the networks by sketch key, with measured steps in their replay buffers."""
        values: dict[str, QValues] = {}
        places = places_by_sketch([candidate.sketch for candidate in sample.candidates])
        for scored_rows in scorer.memory():
            moves, lines = moves_of(scored_rows.sketch), places.get(scored_rows.sketch.key, [])
            rows = decision_rows(scored_rows.sketch, sample.candidates, lines)
            features = scorer.space.features([sample.candidates[index] for index in lines])
            steps = measured_steps(moves, rows, features, sample.label[lines])
            values[scored_rows.sketch.key] = QValues(moves, scored_rows.features, steps, self.rate, rng)
            if lesson := lessons.of(scored_rows.sketch.key):
                values[scored_rows.sketch.key].go_on(lesson)
        return values

    def _step(
        self,
        scorer: Scorer,
        walkers: Sequence[ScoredRows],
        values: dict[str, QValues],
        epsilon: float,
        rng: np.random.Generator,
    ) -> list[ScoredRows]:
        """Make one step with the walkers of every sketch, and add it to the replay buffers."""
        ways = [values[start.sketch.key].ways(start, epsilon, rng) for start in walkers]
        moved = [moves_of(h.sketch).apply(h.rows, way) for h, way in zip(walkers, ways, strict=True)]
        arrived = scorer.score_rows([(h.sketch, rows) for h, rows in zip(walkers, moved, strict=True)], WALK)
        for start, way, arrival in zip(walkers, ways, arrived, strict=True):
            values[start.sketch.key].remember(start, way, arrival)
        return arrived
