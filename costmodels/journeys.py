"""The states that value iteration learns from: prefixes of measured rows, and ways to go on from them."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Matrix, Vector
from costmodels.columns import SHARED
from costmodels.metrics import Groups, members
from costmodels.prefixes import DECIDED, LAST, STEP, Steps, continued, outermost, reproducible

STATES_A_ROW: Final = 6
MOST_STATES: Final = 12_000  # so that learning costs no more for a base
END_SHARE: Final = 0.3  # of the ways, those that go to the end at once

Lines = NDArray[np.int64]


class Onward(NamedTuple):
    """Where some of the states lead to: rows, and the step up to which they are decided."""

    states: Lines
    rows: Matrix
    steps: Steps


@dataclass(frozen=True)
class _Block:
    """Rows of one task and sketch, and the states on them."""

    lines: Lines
    states: Lines
    real: Steps  # the steps after which rows differ, and the end
    rests: Steps


@dataclass(frozen=True)
class Journeys:
    """States: the line of a row and the step up to which it is decided; the best label seen behind each."""

    rows: Matrix
    at: Lines
    steps: Steps
    seen: Vector
    blocks: tuple[_Block, ...]

    def onward(self, rng: np.random.Generator, *, to_the_end: bool) -> Onward:
        """One way on from each state that has one, its decisions taken from another row of its block."""
        parts = [self._from(block, rng, to_the_end) for block in self.blocks]
        return Onward(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _from(self, block: _Block, rng: np.random.Generator, to_the_end: bool) -> Onward:
        steps = self.steps[block.states]
        first = np.searchsorted(block.real, steps, side="right")
        drawn = block.real[rng.integers(first, len(block.real))]
        end = to_the_end | (rng.random(len(steps)) < END_SHARE)
        until = np.where(end, LAST, drawn)
        donors = self.rows[rng.choice(block.lines, size=len(steps))]
        mixed, good = continued(self.rows[self.at[block.states]], donors, steps, until, block.rests)
        return Onward(block.states[good], mixed[good], until[good])


def journeys_of(rows: Matrix, labels: Vector, groups: Groups, rng: np.random.Generator) -> Journeys:
    """States drawn from rows in which what is derived follows from what is decided, a few from each."""
    fit = reproducible(rows)
    usable = np.flatnonzero(fit) if fit.any() else np.arange(len(rows))
    chosen = np.sort(rng.permutation(usable)[:MOST_STATES])
    rows, labels, groups = rows[chosen], labels[chosen], groups[chosen]
    sketch = _numbered(np.column_stack([_numbered(groups), _hashes(rows[:, :SHARED])[:, -1]]))
    at = np.repeat(np.arange(len(rows)), max(1, min(STATES_A_ROW, MOST_STATES // len(rows))))
    steps, blocks = np.empty(len(at), dtype=np.int64), []
    for lines in members(sketch):
        block = _block(rows, lines, np.flatnonzero(np.isin(at, lines)))
        steps[block.states] = np.append(-1, block.real)[rng.integers(len(block.real), size=len(block.states))]
        blocks.append(block)
    seen = _best_behind(rows, labels, sketch)[at, steps + 1]
    return Journeys(rows, at, steps, seen, tuple(blocks))


def _block(rows: Matrix, lines: Lines, states: Lines) -> _Block:
    return _Block(lines, states, _real_steps(rows[lines]), outermost(rows[lines]))


def _real_steps(rows: Matrix) -> Steps:
    """The steps that decide something in rows of one sketch, then the last one."""
    varies = (rows[:, DECIDED] != rows[0, DECIDED]).any(axis=0)
    return np.union1d(STEP[DECIDED[varies]], [LAST])


def _best_behind(rows: Matrix, labels: Vector, sketch: Groups) -> Matrix:
    """For each row and step (nowhere first) the best label of its block's rows that agree up to there."""
    order = DECIDED[np.argsort(STEP[DECIDED])]
    hashes = np.column_stack([np.zeros(len(rows)), _hashes(rows[:, order])])
    best = np.empty(hashes.shape, dtype=np.float32)
    for at in range(hashes.shape[1]):
        same = _numbered(np.column_stack([sketch, hashes[:, at]]))
        most = np.full(same.max() + 1, -np.inf, dtype=np.float32)
        np.maximum.at(most, same, labels)
        best[:, at] = most[same]
    return best


def _hashes(rows: Matrix) -> NDArray[np.float64]:
    """A number for the first, the first two, ... columns of each row; equal for equal ones."""
    weights = np.random.default_rng(0).normal(size=rows.shape[1])
    return np.asarray(np.cumsum(rows.astype(np.float64) * weights, axis=1))


def _numbered(keys: NDArray[np.float64] | Groups) -> Groups:
    """Equal keys (or lines of keys) as equal numbers, from zero."""
    lines = keys.reshape(len(keys), -1)
    order = np.lexsort(lines.T)
    sorted_keys = lines[order]
    numbers = np.zeros(len(keys), dtype=np.int64)
    numbers[order[1:]] = np.cumsum((sorted_keys[1:] != sorted_keys[:-1]).any(axis=1))
    return numbers
