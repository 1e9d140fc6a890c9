"""Learns what the best completion of a partial schedule reaches, by value iteration on measured rows."""

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


SWEEPS: Final = 4
OPTIONS: Final = 6  # ways to go on that are looked at from each state
MEMBERS: Final = 2  # boosters of the last sweep


class ValueModel(PrefixBoosters, ValuesPrefixes):
    """Boosters on whole schedules, and boosters on prefixes whose targets come from value iteration.

    After "Value Learning for Throughput Optimization of Deep Neural Networks" (MLSys'21): the value of a
    partial schedule is the best that any completion of it reaches, so a beam may rank prefixes without
    completing them. States are prefixes of measured candidates. A state's target is the best of what was
    measured behind it and of the values, by the sweep before, of states that sampled decisions lead to; at
    the end of the way the model of whole schedules is asked.

    Where it differs: the paper learns an LSTM over the stages of a pipeline, and measures more while it
    learns. Here a step is a tile factor of one task, boosters take open decisions as missing values, and the
    rows of the dataset are all the measurements there are. Decisions are sampled from other rows of the same
    task and sketch, as far as factors still multiply up. A step may decide several things at once, so a few
    sweeps carry values from the ends to the beginnings.
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
        """The best value that any of the sampled ways leads to."""
        best = np.full(len(journeys.at), -np.inf, dtype=np.float32)
        for _ in range(OPTIONS):
            way = journeys.onward(rng, to_the_end=not boosters)
            worth = self._values(boosters, prefixes(way.rows, way.steps), way.steps >= LAST)
            best[way.states] = np.maximum(best[way.states], worth)
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
