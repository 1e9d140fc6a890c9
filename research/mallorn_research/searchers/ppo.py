"""Proximal policy optimisation over knob steps (down, stay, up), as in Chameleon."""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from mallorn.costmodels.base import Column, Indices
from mallorn.searchers.learning.exploring_learner import HistorySample, Learner, ScoredRows, Scorer
from mallorn.searchers.space import Matrix
from mallorn.searchers.tile_factorizations import Rows
from mallorn_research.searchers.decision_moves import STAY, DenseNetwork, moves_of, reward

DOWN, KEEP, UP = 0, 1, 2
HIDDEN = (64,)
BATCH = 256
MOVED = 2.0  # expected number of knobs that an untrained policy moves per step


class Experience(NamedTuple):
    """Training steps: states, actions and log probabilities, advantages and returns."""

    state: Matrix
    action: Indices  # rows x knobs
    chance: Column  # log probabilities, rows x knobs
    advantage: Column
    value: Column

    def at(self, lines: Indices) -> "Experience":
        return Experience(**{name: rows[lines] for name, rows in self._asdict().items()})


class Actor:
    """A policy (chances of each knob to go down, stay, go up) and a critic of states."""

    def __init__(self, rows: Matrix, knobs: int, rate: float, rng: np.random.Generator) -> None:
        self._policy = DenseNetwork(rows, HIDDEN, 3 * knobs, rate, rng)
        self._critic = DenseNetwork(rows, HIDDEN, 1, rate, rng)
        moving = min(0.5, MOVED / max(1, knobs))
        self._calm = np.log([moving / 2, 1 - moving, moving / 2])

    def choose_actions(self, state: Matrix, rng: np.random.Generator) -> tuple[Indices, Column]:
        """Return an action (down, stay, up) per knob (decision), and its log probability."""
        logs = self._logs(self._policy(state))
        action = (logs + rng.gumbel(size=logs.shape)).argmax(axis=2)
        return action, _log_probabilities_of_actions(logs, action)

    def value(self, state: Matrix) -> Column:
        """Return the expected discounted reward from each state."""
        return self._critic(state)[:, 0]

    def learn(
        self, experience: Experience, epochs: int, clip: float, entropy: float, rng: np.random.Generator
    ) -> None:
        for _ in range(epochs):
            order = rng.permutation(len(experience.value))
            for lines in np.split(order, range(BATCH, len(order), BATCH)):
                part = experience.at(lines)
                self._policy.learn(part.state, partial(self._slope, part, clip, entropy))
                self._critic.learn(part.state, partial(_value_slope, part.value[:, None]))

    def _logs(self, outputs: Column) -> Column:
        logits = outputs.reshape(len(outputs), -1, 3) + self._calm
        return np.asarray(logits - np.log(np.exp(logits).sum(axis=2, keepdims=True)))

    def _slope(self, part: Experience, clip: float, entropy: float, outputs: Column) -> Column:
        logs = self._logs(outputs)
        chances = np.exp(logs)
        ratio = np.exp(_log_probabilities_of_actions(logs, part.action) - part.chance)
        gain = part.advantage[:, None]
        open_ = np.where(gain > 0, ratio < 1 + clip, ratio > 1 - clip)
        push = (ratio * gain * open_)[:, :, None]
        slope = -push * (np.arange(3) == part.action[:, :, None]) + push * chances
        surprise = -(chances * logs).sum(axis=2, keepdims=True)
        slope += entropy * chances * (logs + surprise)
        return np.asarray(slope.reshape(len(outputs), -1) / len(outputs))


def _value_slope(target: Column, outputs: Column) -> Column:
    return np.asarray((outputs - target) / len(target))


def _log_probabilities_of_actions(logs: Column, action: Indices) -> Column:
    return np.take_along_axis(logs, action[:, :, None], axis=2)[:, :, 0]


SMALLEST_SPREAD = 1e-6


class Trajectory:
    """The paths of several candidates (walkers) of one sketch that a policy moves."""

    def __init__(self, actor: Actor, start: ScoredRows) -> None:
        self.actor = actor
        self.states = [start]  # the newest last
        self._actions: list[Indices] = []
        self._chances: list[Column] = []

    def choose_next_rows(self, rng: np.random.Generator) -> Rows:
        """Let the policy choose an action for each knob; return the resulting rows."""
        rows = self.states[-1].rows
        action, chance = self.actor.choose_actions(self.states[-1].features, rng)
        self._actions.append(action)
        self._chances.append(chance)
        moves = moves_of(self.states[-1].sketch)
        for (down, up_move), options in zip(moves.knobs, action.T, strict=True):
            rows = moves.apply(rows, np.array([down, STAY, up_move])[options])
        return rows

    def experience(self, discount: float, trace: float) -> Experience:
        """Return all steps of all walkers as training data, with normalised advantages."""
        promise = np.stack([scored_rows.promise for scored_rows in self.states])
        values = np.stack([self.actor.value(scored_rows.features) for scored_rows in self.states])
        gain = advantages(reward(np.diff(promise, axis=0)), values, discount, trace)
        normalised = (gain - gain.mean()) / max(SMALLEST_SPREAD, float(gain.std()))
        return Experience(
            np.concatenate([scored_rows.features for scored_rows in self.states[:-1]]),
            np.concatenate(self._actions),
            np.concatenate(self._chances),
            normalised.reshape(-1),
            (values[:-1] + gain).reshape(-1),
        )


def advantages(rewards: Column, values: Column, discount: float, trace: float) -> Column:
    """Return generalised advantage estimates (steps x walkers); `values` has one more step."""
    surprise = rewards + discount * values[1:] - values[:-1]
    advantage = np.zeros_like(surprise)
    for index in reversed(range(len(surprise))):
        next_advantage = advantage[index + 1] if index + 1 < len(surprise) else 0.0
        advantage[index] = surprise[index] + discount * trace * next_advantage
    return advantage


STEP = "step"


@dataclass(eq=False, kw_only=True)
class Ppo(Learner):
    """A policy changes all decisions of candidates (walkers) in each step, to raise scores.

    After each rollout the policy is updated a fixed number of times, and the walkers
    restart from scored candidates, drawn with Boltzmann weights. With `learning` off, the
    walkers step at random.
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

    def explore(self, scorer: Scorer, sample: HistorySample, rng: np.random.Generator) -> None:
        actors: dict[str, Actor] = {}
        for scored_rows in scorer.scored_rows_by_sketch():
            knob_count = len(moves_of(scored_rows.sketch).knobs)
            actors[scored_rows.sketch.key] = Actor(scored_rows.features, knob_count, self.rate, rng)
        for _ in range(max(1, (self.considered - len(scorer)) // (self.walkers * self.horizon))):
            trails = [
                Trajectory(actors[s.sketch.key], s)
                for s in scorer.draw_start_rows(self.walkers, self.greed, rng)
            ]
            for _ in range(self.horizon):
                views = [(trail.states[-1].sketch, trail.choose_next_rows(rng)) for trail in trails]
                for trail, arrival in zip(trails, scorer.score_rows(views, STEP), strict=True):
                    trail.states.append(arrival)
            for trail in trails if self.learning else ():
                experience = trail.experience(self.discount, self.trace)
                trail.actor.learn(experience, self.epochs, self.clip, self.entropy, rng)
