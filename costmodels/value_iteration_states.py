"""The states that value iteration learns from: prefixes of measured rows, and ways to go on from them."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from costmodels.base import Groups, Indices, Matrix, Vector
from costmodels.generator_examples import by_sketch, hashes, numbered, real_steps
from costmodels.metrics import members
from costmodels.partial_schedules import DECIDED, LAST, STEP, Steps, continued, outermost, reproducible

STATES_A_ROW: Final = 6
MOST_STATES: Final = 12_000  # so that learning costs no more for a base
END_SHARE: Final = 0.3  # of the ways, those that go to the end at once


class Onward(NamedTuple):
    """Where some of the states lead to: rows, and the step up to which they are decided."""

    states: Indices
    rows: Matrix
    steps: Steps


@dataclass(frozen=True)
class _Block:
    """Rows of one task and sketch, and the states on them."""

    lines: Indices
    states: Indices
    real: Steps  # the steps after which rows differ, and the end
    rests: Steps


@dataclass(frozen=True)
class ValueIterationStates:
    """States: the line of a row and the step up to which it is decided; the best label seen behind each."""

    rows: Matrix
    at: Indices
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


def journeys_of(
    rows: Matrix, labels: Vector, groups: Groups, rng: np.random.Generator
) -> ValueIterationStates:
    """States drawn from rows in which what is derived follows from what is decided, a few from each."""
    fit = reproducible(rows)
    usable = np.flatnonzero(fit) if fit.any() else np.arange(len(rows))
    chosen = np.sort(rng.permutation(usable)[:MOST_STATES])
    rows, labels, groups = rows[chosen], labels[chosen], groups[chosen]
    sketch = by_sketch(rows, groups)
    at = np.repeat(np.arange(len(rows)), max(1, min(STATES_A_ROW, MOST_STATES // len(rows))))
    steps, blocks = np.empty(len(at), dtype=np.int64), []
    for lines in members(sketch):
        block = _Block(
            lines, np.flatnonzero(np.isin(at, lines)), real_steps(rows[lines]), outermost(rows[lines])
        )
        steps[block.states] = np.append(-1, block.real)[rng.integers(len(block.real), size=len(block.states))]
        blocks.append(block)
    seen = _best_behind(rows, labels, sketch)[at, steps + 1]
    return ValueIterationStates(rows, at, steps, seen, tuple(blocks))


def _best_behind(rows: Matrix, labels: Vector, sketch: Groups) -> Matrix:
    """For each row and step (nowhere first) the best label of its block's rows that agree up to there."""
    order = DECIDED[np.argsort(STEP[DECIDED])]
    behind = np.column_stack([np.zeros(len(rows)), hashes(rows[:, order])])
    best = np.empty(behind.shape, dtype=np.float32)
    for at in range(behind.shape[1]):
        same = numbered(np.column_stack([sketch, behind[:, at]]))
        most = np.full(same.max() + 1, -np.inf, dtype=np.float32)
        np.maximum.at(most, same, labels)
        best[:, at] = most[same]
    return best
