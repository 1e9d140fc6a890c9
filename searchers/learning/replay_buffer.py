"""A replay buffer: steps with their rewards, for repeated training."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Indices
from searchers.learning.moves import Mask, Moves
from searchers.learning.serial_matmul import Array
from searchers.space import Matrix
from searchers.tile_factorizations import Rows


class Transitions(NamedTuple):
    """State, direction, reward, next state, and the legal directions there."""

    state: Matrix
    way: Indices
    reward: Array
    after: Matrix
    legal: Mask

    def drawn(self, rng: np.random.Generator, count: int) -> "Transitions":
        lines = rng.integers(len(self.way), size=count)
        return Transitions(
            self.state[lines], self.way[lines], self.reward[lines], self.after[lines], self.legal[lines]
        )


def joined(steps: Sequence[Transitions]) -> Transitions:
    """Concatenate several batches of steps."""
    return Transitions(*(np.concatenate(column) for column in zip(*steps, strict=True)))


def reward(gain: NDArray[np.floating]) -> Array:
    """Return the tanh of a difference of log speeds, so that failures do not dominate."""
    return np.asarray(np.tanh(gain), dtype=np.float64)


def measured_steps(moves: Moves, rows: Rows, features: Matrix, speed: NDArray[np.floating]) -> Transitions:
    """Return the steps between pairs of measured rows, with rewards from their speeds."""
    start = np.repeat(np.arange(len(rows)), len(moves))
    way = np.tile(np.arange(len(moves)), len(rows))
    end = _places(rows, moves.apply(rows[start], way))
    pairs = np.flatnonzero((end >= 0) & (end != start))
    start, end, way = start[pairs], end[pairs], way[pairs]
    gain = reward(speed[end] - speed[start])
    return Transitions(features[start], way, gain, features[end], moves.legal(rows[end]))


def _places(rows: Rows, queries: Rows) -> Indices:
    """Return the index of each wanted row among the rows; -1 if it is missing."""
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    salt = np.random.default_rng(0).integers(2**31, size=rows.shape[1])  # a hash, checked below
    codes = rows @ salt
    order = np.argsort(codes)
    candidates = order[np.minimum(np.searchsorted(codes[order], queries @ salt), len(rows) - 1)]
    return np.where((rows[candidates] == queries).all(axis=1), candidates, -1)
