"""Q-learning over directions, as in FlexTensor: predicts which small steps raise the score."""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import numpy as np

from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.base import WALK
from mallorn.searchers.decision_features import decision_rows, places_by_sketch
from mallorn.searchers.learning.exploring_learner import HistorySample, Learner, ScoredRows, Scorer
from mallorn.searchers.space import Matrix
from mallorn_research.searchers.decision_moves import (
    STAY,
    DenseNetwork,
    Moves,
    Transitions,
    joined,
    measured_steps,
    moves_of,
    reward,
)

HIDDEN = (64, 64)
BATCH = 128


class QValues:
    """A network that predicts values of steps: reward plus discounted best next value. It
    learns from `transitions`, which were measured, and from those that it remembers."""

    def __init__(
        self, moves: Moves, rows: Matrix, transitions: Transitions, rate: float, rng: np.random.Generator
    ) -> None:
        self._moves = moves
        self._network = DenseNetwork(rows, HIDDEN, len(moves), rate, rng)
        self._replay = [transitions]

    def choose_directions(self, start: ScoredRows, epsilon: float, rng: np.random.Generator) -> Indices:
        """Return each row's best direction or, with probability `epsilon`, a random one."""
        if not len(self._moves):
            return np.full(len(start), STAY, dtype=np.int64)
        legal = self._moves.legal(start.rows)
        best = np.where(legal, self._network(start.features), -np.inf).argmax(axis=1)
        anywhere = np.where(legal, rng.random(legal.shape), -1.0).argmax(axis=1)
        return np.asarray(np.where(rng.random(len(start)) < epsilon, anywhere, best))

    def remember(self, start: ScoredRows, directions: Indices, arrival: ScoredRows) -> None:
        """Add steps to the replay buffer; their gain in score is the reward."""
        gain = reward(arrival.promise - start.promise)
        steps = Transitions(
            start.features, directions, gain, arrival.features, self._moves.legal(arrival.rows)
        )
        self._replay.append(steps)

    def learn(self, updates: int, discount: float, rng: np.random.Generator) -> None:
        """Train on batches of the replay buffer, with targets from a copy of the network."""
        self._replay = [joined(self._replay)]
        frozen_network = deepcopy(self._network)
        for _ in range(updates if len(self._moves) and len(self._replay[0].way) else 0):
            steps = self._replay[0].drawn(rng, BATCH)
            next_values = np.where(steps.legal, frozen_network(steps.after), 0.0).max(axis=1, initial=0.0)
            targets = steps.reward + discount * next_values
            self._network.learn(steps.state, partial(_slope, steps.way, targets))


def _slope(directions: Indices, targets: Column, outputs: Column) -> Column:
    line = np.arange(len(targets))
    error = np.zeros_like(outputs)
    error[line, directions] = (outputs[line, directions] - targets) / len(targets)
    return error


@dataclass(eq=False, kw_only=True)
class QLearning(Learner):
    """Candidates (walkers) start from good ones and step in the directions of highest value.

    Values are trained on measured steps of the history, and on this round's steps with the
    model's score as reward. A share of the steps is random; it shrinks during the round.
    With `learning` off, all steps are random.
    """

    walkers: int = 128
    walk: int = 4
    greed: float = 2.0
    epsilon: tuple[float, float] = (0.8, 0.1)
    discount: float = 0.7
    updates: int = 24
    rate: float = 5e-3

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        # The networks by sketch key, with measured steps in their replay buffers.
        values: dict[str, QValues] = {}
        places = places_by_sketch([candidate.sketch for candidate in sample.candidates])
        for scored_rows in scorer.scored_rows_by_sketch():
            moves, lines = moves_of(scored_rows.sketch), places.get(scored_rows.sketch.key, [])
            rows = decision_rows(scored_rows.sketch, sample.candidates, lines)
            features = scorer.space.features([sample.candidates[index] for index in lines])
            steps = measured_steps(moves, rows, features, sample.label[lines])
            values[scored_rows.sketch.key] = QValues(moves, scored_rows.features, steps, self.rate, rng)

        rounds = max(1, (self.considered - len(scorer)) // (self.walkers * self.walk))
        for epsilon in np.geomspace(*(self.epsilon if self.learning else (1.0, 1.0)), num=rounds):
            walkers = scorer.draw_start_rows(self.walkers, self.greed, rng)
            for _ in range(self.walk):
                ways = [values[w.sketch.key].choose_directions(w, float(epsilon), rng) for w in walkers]
                views = [
                    (walker.sketch, moves_of(walker.sketch).apply(walker.rows, way))
                    for walker, way in zip(walkers, ways, strict=True)
                ]
                arrivals = scorer.score_rows(views, WALK)
                for walker, way, arrival in zip(walkers, ways, arrivals, strict=True):
                    values[walker.sketch.key].remember(walker, way, arrival)
                walkers = arrivals
            for walker in walkers if self.learning else ():
                updates = round(self.updates * len(walker) / self.walkers)
                values[walker.sketch.key].learn(updates, self.discount, rng)
