"""A rollout of the walkers of one sketch: states, actions, rewards."""

import numpy as np

from costmodels.base import Indices
from searchers.learning.moves import STAY, Moves, moves_of
from searchers.learning.ppo_actor import Actor, Experience
from searchers.learning.replay_buffer import reward
from searchers.learning.scorer import ScoredRows
from searchers.learning.serial_matmul import Array
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
        return _stepped(moves_of(self.here.sketch), self.here.rows, action)

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


def _stepped(moves: Moves, rows: Rows, action: Indices) -> Rows:
    """Move every knob one step, in order; illegal steps are left out."""
    for (down, up), wanted in zip(moves.knobs, action.T, strict=True):
        rows = moves.apply(rows, np.array([down, STAY, up])[wanted])
    return rows
