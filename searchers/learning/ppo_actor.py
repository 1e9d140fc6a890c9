"""A policy over the knobs of one sketch, and its critic, learnt with PPO's clipped objective."""

from typing import NamedTuple

import numpy as np

from costmodels.base import Indices
from searchers.learning.dense_network import DenseNetwork
from searchers.learning.learned_parameters import Lesson
from searchers.learning.serial_matmul import Array
from searchers.space import Matrix

DOWN, KEEP, UP = 0, 1, 2
HIDDEN = (64,)
BATCH = 256
MOVED = 2.0  # knobs that an untrained policy moves per step


class Experience(NamedTuple):
    """States, actions, their log probabilities, advantages and returns."""

    state: Matrix
    action: Indices  # rows x knobs
    chance: Array  # log probabilities, rows x knobs
    advantage: Array
    value: Array

    def at(self, lines: Indices) -> "Experience":
        return Experience(
            self.state[lines],
            self.action[lines],
            self.chance[lines],
            self.advantage[lines],
            self.value[lines],
        )


class Actor:
    """The policy: probabilities of down, stay and up for each knob. The critic: the value of a state."""

    def __init__(self, known: Matrix, knobs: int, rate: float, rng: np.random.Generator) -> None:
        self._policy = DenseNetwork(known, HIDDEN, 3 * knobs, rate, rng)
        self._critic = DenseNetwork(known, HIDDEN, 1, rate, rng)
        moving = min(0.5, MOVED / max(1, knobs))
        self._calm = np.log([moving / 2, 1 - moving, moving / 2])

    def lesson(self) -> Lesson:
        """What it has learned."""
        policy = {f"policy.{name}": array for name, array in self._policy.lesson().items()}
        return policy | {f"critic.{name}": array for name, array in self._critic.lesson().items()}

    def go_on(self, lesson: Lesson) -> None:
        """Take up what another one learned; what is of another shape is left alone."""
        for part, network in (("policy.", self._policy), ("critic.", self._critic)):
            network.go_on({n.removeprefix(part): array for n, array in lesson.items() if n.startswith(part)})

    def act(self, state: Matrix, rng: np.random.Generator) -> tuple[Indices, Array]:
        """An action per knob, and its log probability."""
        logs = self._logs(self._policy(state))
        action = (logs + rng.gumbel(size=logs.shape)).argmax(axis=2)
        return action, _taken(logs, action)

    def value(self, state: Matrix) -> Array:
        """The expected discounted reward from each state."""
        return self._critic(state)[:, 0]

    def learn(
        self, experience: Experience, epochs: int, clip: float, entropy: float, rng: np.random.Generator
    ) -> None:
        """Learn from the experience, in a few passes over batches."""
        for _ in range(epochs):
            order = rng.permutation(len(experience.value))
            for lines in np.split(order, range(BATCH, len(order), BATCH)):
                self._update(experience.at(lines), clip, entropy)

    def _update(self, part: Experience, clip: float, entropy: float) -> None:
        self._policy.learn(part.state, lambda outputs: self._slope(outputs, part, clip, entropy))
        hoped = part.value[:, None]
        self._critic.learn(part.state, lambda outputs: (outputs - hoped) / len(hoped))

    def _logs(self, outputs: Array) -> Array:
        raised = outputs.reshape(len(outputs), -1, 3) + self._calm
        return np.asarray(raised - np.log(np.exp(raised).sum(axis=2, keepdims=True)))

    def _slope(self, outputs: Array, part: Experience, clip: float, entropy: float) -> Array:
        """The gradient of the clipped objective, knob by knob, with an entropy bonus."""
        logs = self._logs(outputs)
        chances = np.exp(logs)
        ratio, gain = np.exp(_taken(logs, part.action) - part.chance), part.advantage[:, None]
        open_ = np.where(gain > 0, ratio < 1 + clip, ratio > 1 - clip)
        push = (ratio * gain * open_)[:, :, None]
        slope = -push * (np.arange(3) == part.action[:, :, None]) + push * chances
        surprise = -(chances * logs).sum(axis=2, keepdims=True)
        slope += entropy * chances * (logs + surprise)
        return np.asarray(slope.reshape(len(outputs), -1) / len(outputs))


def _taken(logs: Array, action: Indices) -> Array:
    return np.take_along_axis(logs, action[:, :, None], axis=2)[:, :, 0]
