"""Predict the score of a partial schedule's best completion, by value iteration."""

from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

import numpy as np
import xgboost
from numpy.typing import NDArray

from costmodels.base import Groups, Indices, Matrix, Vector
from costmodels.decision_model_interfaces import ValuesPrefixes
from costmodels.ensemble_spread import LARGEST, finite, importance
from costmodels.generator_examples import by_sketch, hashes, numbered, real_steps
from costmodels.metrics import members
from costmodels.partial_schedules import (
    DECIDED,
    LAST,
    STEP,
    Steps,
    continued,
    outermost,
    prefixes,
    reproducible,
)
from costmodels.prefix_boosters import PrefixBoosters
from costmodels.xgboost_ensemble import as_data, grow, opinions

STATES_A_ROW: Final = 6
MOST_STATES: Final = 12_000  # bounds the training time of a base model
END_SHARE: Final = 0.3  # share of the transitions that complete the schedule at once


class Onward(NamedTuple):
    """Transitions: states, successor rows, and the steps up to which these are decided."""

    states: Indices
    rows: Matrix
    steps: Steps


@dataclass(frozen=True)
class _Block:
    """Rows of one task and sketch, and the states drawn from them."""

    lines: Indices
    states: Indices
    real: Steps  # the steps after which rows differ, and the end
    rests: Steps


@dataclass(frozen=True)
class ValueIterationStates:
    """States (a row and a decision step), with the best measured label of completions."""

    rows: Matrix
    at: Indices
    steps: Steps
    seen: Vector
    blocks: tuple[_Block, ...]

    def onward(self, rng: np.random.Generator, *, to_the_end: bool) -> Onward:
        """Draw a transition per state, deciding as another row of its block; drop invalid ones."""
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
    """Draw a few states from each row whose derived columns can be recomputed."""
    is_reproducible = reproducible(rows)
    usable = np.flatnonzero(is_reproducible) if is_reproducible.any() else np.arange(len(rows))
    chosen = np.sort(rng.permutation(usable)[:MOST_STATES])
    rows, labels, groups = rows[chosen], labels[chosen], groups[chosen]
    sketch = by_sketch(rows, groups)
    index = np.repeat(np.arange(len(rows)), max(1, min(STATES_A_ROW, MOST_STATES // len(rows))))
    steps, blocks = np.empty(len(index), dtype=np.int64), []
    for lines in members(sketch):
        block = _Block(
            lines, np.flatnonzero(np.isin(index, lines)), real_steps(rows[lines]), outermost(rows[lines])
        )
        steps[block.states] = np.append(-1, block.real)[rng.integers(len(block.real), size=len(block.states))]
        blocks.append(block)
    best_labels = _best_completion(rows, labels, sketch)[index, steps + 1]
    return ValueIterationStates(rows, index, steps, best_labels, tuple(blocks))


def _best_completion(rows: Matrix, labels: Vector, sketch: Groups) -> Matrix:
    """Return per row and step (first: no decision) the best label of its block's equal rows."""
    order = DECIDED[np.argsort(STEP[DECIDED])]
    prefix_hashes = np.column_stack([np.zeros(len(rows)), hashes(rows[:, order])])
    best = np.empty(prefix_hashes.shape, dtype=np.float32)
    for index in range(prefix_hashes.shape[1]):
        same = numbered(np.column_stack([sketch, prefix_hashes[:, index]]))
        most = np.full(same.max() + 1, -np.inf, dtype=np.float32)
        np.maximum.at(most, same, labels)
        best[:, index] = most[same]
    return best


SWEEPS: Final = 4
OPTIONS: Final = 6  # transitions tried from each state
MEMBERS: Final = 2  # boosters of the last sweep


class ValueModel(PrefixBoosters, ValuesPrefixes):
    """Boosters on full schedules, and boosters on prefixes trained by value iteration.

    After "Value Learning for Throughput Optimization of Deep Neural Networks" (MLSys'21): the
    value of a partial schedule is the score of its best completion, so a beam search can rank
    prefixes without completing them. States are prefixes of measured candidates. A state's
    target is the maximum of the best label measured among its completions and the values, from
    the previous sweep, of successors by sampled decisions; complete schedules are valued by
    the model of full schedules.

    Differences: the paper trains an LSTM over the stages of a pipeline, and measures more
    during training. Here a step is a tile factor of one task, boosters treat open decisions as
    missing values, and only rows of the dataset are used. Decisions are sampled from other
    rows of the same task and sketch if the factors still divide the extents. A step may make
    several decisions at once, so a few sweeps are enough to propagate values from the last
    step to the first.
    """

    KIND: ClassVar[str] = "value"
    opener: ClassVar[str | None] = "beam"

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        self._whole.fit(features, labels, groups, seed=seed)
        self._boosters = []
        if len(labels):
            rng = np.random.default_rng([seed, 1])
            journeys = journeys_of(finite(features), labels, groups, rng)
            states = prefixes(journeys.rows[journeys.at], journeys.steps)
            boosters: list[xgboost.Booster] = []
            for sweep in range(SWEEPS):
                target = np.maximum(journeys.seen, self._ahead(journeys, boosters, rng))
                target = np.minimum(target, np.float32(0.0))
                data, weight = as_data(states, target), importance(target)
                boosters = [grow(data, weight, rng) for _ in range(MEMBERS if sweep == SWEEPS - 1 else 1)]
            self._boosters = boosters

    def _ahead(
        self, journeys: ValueIterationStates, boosters: list[xgboost.Booster], rng: np.random.Generator
    ) -> Vector:
        """Return per state the best value of its sampled successors; -inf without any."""
        best = np.full(len(journeys.at), -np.inf, dtype=np.float32)
        for _ in range(OPTIONS):
            moves = journeys.onward(rng, to_the_end=not boosters)
            values = self._values(boosters, prefixes(moves.rows, moves.steps), moves.steps >= LAST)
            best[moves.states] = np.maximum(best[moves.states], values)
        return best

    def _values(self, boosters: list[xgboost.Booster], rows: Matrix, complete: NDArray[np.bool_]) -> Vector:
        worth = np.empty(len(rows), dtype=np.float32)
        if complete.any():
            worth[complete] = self._whole.predict(rows[complete]).mean
        if not complete.all():
            worth[~complete] = opinions(boosters, rows[~complete]).mean(axis=0)
        return worth

    def value(self, features: Matrix) -> Vector:
        complete = np.asarray(~np.isnan(features).any(axis=1))
        if not self._boosters:
            return self._whole.predict(features).mean
        return self._values(self._boosters, np.clip(features, -LARGEST, LARGEST), complete)
