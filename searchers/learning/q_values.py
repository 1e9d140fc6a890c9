"""Q-values of the directions of a sketch, learnt from a replay of steps."""

from copy import deepcopy

import numpy as np

from costmodels.base import Indices
from searchers.learning.dense_network import DenseNetwork
from searchers.learning.learned_parameters import Lesson
from searchers.learning.moves import STAY, Moves
from searchers.learning.replay_buffer import Transitions, joined, reward
from searchers.learning.scorer import ScoredRows
from searchers.learning.serial_matmul import Array
from searchers.space import Matrix

HIDDEN = (64, 64)
BATCH = 128


class QValues:
    """The value of a direction: its reward plus the discounted value of the best next one."""

    def __init__(
        self, moves: Moves, known: Matrix, measured: Transitions, rate: float, rng: np.random.Generator
    ) -> None:
        self._moves = moves
        self._network = DenseNetwork(known, HIDDEN, len(moves), rate, rng)
        self._replay = [measured]

    def lesson(self) -> Lesson:
        """What it has learned."""
        return self._network.lesson()

    def go_on(self, lesson: Lesson) -> None:
        """Take up what another one learned; what is of another shape is left alone."""
        self._network.go_on(lesson)

    def ways(self, here: ScoredRows, epsilon: float, rng: np.random.Generator) -> Indices:
        """The direction of the highest value, or sometimes a random legal one."""
        if not len(self._moves):
            return np.full(len(here), STAY, dtype=np.int64)
        legal = self._moves.legal(here.rows)
        best = np.where(legal, self._network(here.features), -np.inf).argmax(axis=1)
        anywhere = np.where(legal, rng.random(legal.shape), -1.0).argmax(axis=1)
        return np.asarray(np.where(rng.random(len(here)) < epsilon, anywhere, best))

    def remember(self, here: ScoredRows, way: Indices, there: ScoredRows) -> None:
        """Add a step to the replay, rewarded by its gain."""
        gain = reward(there.promise - here.promise)
        steps = Transitions(here.features, way, gain, there.features, self._moves.legal(there.rows))
        self._replay.append(steps)

    def learn(self, updates: int, discount: float, rng: np.random.Generator) -> None:
        """Fit draws of the replay, with targets from the earlier network."""
        self._replay = [joined(self._replay)]
        before = deepcopy(self._network)
        for _ in range(updates if len(self._moves) and len(self._replay[0].way) else 0):
            steps = self._replay[0].drawn(rng, BATCH)
            onward = np.where(steps.legal, before(steps.after), 0.0).max(axis=1, initial=0.0)
            self._fit(steps, steps.reward + discount * onward)

    def _fit(self, steps: Transitions, worth: Array) -> None:
        line = np.arange(len(worth))

        def slope(outputs: Array) -> Array:
            error = np.zeros_like(outputs)
            error[line, steps.way] = (outputs[line, steps.way] - worth) / len(worth)
            return error

        self._network.learn(steps.state, slope)
