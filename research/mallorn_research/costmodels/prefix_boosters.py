"""Boosted trees on partial schedules: a generator of decisions, and a value function."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple, Self

import numpy as np
import xgboost
from numpy.typing import NDArray

from mallorn.costmodels.base import Column, CostModel, Groups, Indices, Matrix, Prediction, Vector
from mallorn.costmodels.decision_columns import SHARED
from mallorn.costmodels.ensemble_spread import LARGEST, replace_nonfinite, weight_fast_rows
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.serialization import as_array, pack, unpack
from mallorn.costmodels.xgboost_models import (
    PARAMETERS,
    TREES,
    XGBoost,
    make_quantile_matrix,
    member_scores,
    train_booster,
)
from mallorn_research.costmodels.booster_arrays import as_arrays, from_arrays
from mallorn_research.costmodels.decision_prefixes import (
    DECIDED,
    LAST,
    STEP,
    ProposesDecisions,
    Steps,
    ValuesPrefixes,
    continue_prefixes,
    find_outermost_columns,
    has_reproducible_columns,
    mask_undecided_columns,
)

MEMBERS: Final = 2  # boosters on prefixes


class PrefixBoosters(CostModel):
    """Boosters that score complete schedules; subclasses add some for partial schedules."""

    KIND: ClassVar[str]

    def __init__(self) -> None:
        self._whole = XGBoost()
        self._boosters: list[xgboost.Booster] = []

    def predict(self, features: Matrix) -> Prediction:
        return self._whole.predict(features)

    def save(self) -> bytes:
        arrays = {"whole": as_array(self._whole.save()), **as_arrays(self._boosters)}
        return pack(self.KIND, {"members": len(self._boosters)}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        model = cls()
        model._whole = XGBoost.load(arrays["whole"].tobytes())
        model._boosters = from_arrays(arrays, numbers["members"], cls.KIND)
        return model


GOOD_A_TASK: Final = 16
NEAR_THE_BEST: Final = 0.5  # label units: good schedules are at most 1.65 times slower
OTHERS: Final = 4  # alternatives (negative examples) per decision of a good schedule
MOST_GOOD: Final = 1200  # good schedules; bounds the training time of a base model


class DecisionExamples(NamedTuple):
    """Partial schedules, their weights, and whether good ones made the last decision."""

    rows: Matrix
    taken: Vector
    weights: Column


def decision_examples(
    rows: Matrix, labels: Vector, groups: Groups, rng: np.random.Generator
) -> DecisionExamples:
    """Return decisions of each task's best schedules, and alternatives from other rows."""
    is_reproducible = has_reproducible_columns(rows)
    usable = np.flatnonzero(is_reproducible) if is_reproducible.any() else np.arange(len(rows))
    rows, labels, groups = rows[usable], labels[usable], groups[usable]
    fastest = [
        lines[np.argsort(-labels[lines], kind="stable")[:GOOD_A_TASK]] for lines in iterate_group_rows(groups)
    ]
    good_by_task = [best[labels[best] >= labels[best[0]] - NEAR_THE_BEST] for best in fastest]
    good = rng.permutation(np.concatenate(good_by_task))[:MOST_GOOD]
    parts = [
        part
        for lines in iterate_group_rows(number_task_sketches(rows, groups))
        for part in _sketch_examples(rows, labels, lines, np.intersect1d(lines, good), rng)
    ]
    if not parts:
        return DecisionExamples(rows[:0], labels[:0], np.empty(0))
    return DecisionExamples(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _sketch_examples(
    rows: Matrix, labels: Vector, lines: Indices, good: Indices, rng: np.random.Generator
) -> Iterator[DecisionExamples]:
    if not len(good):
        return
    rests, weight = find_outermost_columns(rows[lines]), np.exp(labels[good].astype(np.float64))
    real = find_differing_steps(rows[lines])
    originals, shares = np.repeat(rows[good], OTHERS, axis=0), np.repeat(weight / OTHERS, OTHERS)
    for step, end_step in pairwise([-1, *(real[1:] - 1).tolist(), LAST]):
        yield DecisionExamples(
            mask_undecided_columns(rows[good], end_step), np.ones(len(good), np.float32), weight
        )
        # Alternatives: the decisions in this span of steps come from other rows of the sketch.
        donors = rows[rng.choice(lines, OTHERS * len(good))]
        steps, end_steps = np.full(len(originals), step), np.full(len(originals), end_step)
        new_rows, is_valid = continue_prefixes(originals, donors, steps, end_steps, rests)
        valid = np.flatnonzero(is_valid)
        yield DecisionExamples(
            mask_undecided_columns(new_rows[valid], end_step), np.zeros(len(valid), np.float32), shares[valid]
        )


def number_task_sketches(rows: Matrix, groups: Groups) -> Groups:
    """Return a group number per row, one for each sketch of each task."""
    sketches = hashes(rows[:, :SHARED])[:, -1]
    return number_distinct_keys(np.column_stack([number_distinct_keys(groups), sketches]))


def find_differing_steps(rows: Matrix) -> Steps:
    """Return the steps whose decision differs in these rows of a sketch, and the last."""
    varies = (rows[:, DECIDED] != rows[0, DECIDED]).any(axis=0)
    return np.union1d(STEP[DECIDED[varies]], [LAST])


def hashes(rows: Matrix) -> Column:
    """Return a hash of every prefix (first 1, 2, ... columns) of each row."""
    weights = np.random.default_rng(0).normal(size=rows.shape[1])
    return np.asarray(np.cumsum(rows.astype(np.float64) * weights, axis=1))


def number_distinct_keys(keys: Column | Groups) -> Groups:
    """Number distinct keys (values or lines of values) from 0, equal keys equally."""
    lines = keys.reshape(len(keys), -1)
    order = np.lexsort(lines.T)
    sorted_keys = lines[order]
    numbers = np.zeros(len(keys), dtype=np.int64)
    numbers[order[1:]] = np.cumsum((sorted_keys[1:] != sorted_keys[:-1]).any(axis=1))
    return numbers


class GeneratorModel(PrefixBoosters, ProposesDecisions):
    """Rates the next decision of a partial schedule; further boosters score full schedules.

    After "Enabling Tensor Language Model to Assist in Generating High-Performance Tensor
    Programs" (TLM, OSDI'24): measured schedules are treated as sentences of decisions, and
    a model of the next word, conditioned on the task, generates new ones. Each decision of
    a task's best schedules is a positive example; decisions that other rows of the sketch
    took instead are negative ones. Their log odds are the logits of a softmax over the next
    decision (noise contrastive estimation).

    The paper pretrains a transformer of some hundred million weights. Here boosters on the
    columns that all tasks share are trained on the dataset's rows in seconds, and the model
    of full schedules picks from the generated candidates.
    """

    KIND: ClassVar[str] = "generator"
    opener: ClassVar[str | None] = "generator"

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        self._whole.fit(features, labels, groups, seed=seed)
        self._boosters = []
        if len(labels):
            rng = np.random.default_rng([seed, 1])
            examples = decision_examples(replace_nonfinite(features), labels, groups, rng)
            if examples.taken.any() and not examples.taken.all():
                data = make_quantile_matrix(examples.rows, examples.taken)
                data.set_weight(examples.weights)
                classifier = {**PARAMETERS, "objective": "binary:logistic"}
                seeds = rng.integers(2**31, size=MEMBERS).tolist()
                self._boosters = [
                    xgboost.train({**classifier, "seed": seed}, data, num_boost_round=TREES) for seed in seeds
                ]

    def rate_last_decision(self, features: Matrix) -> Vector:
        if not self._boosters:
            return np.zeros(len(features), dtype=np.float32)
        share = member_scores(self._boosters, np.clip(features, -LARGEST, LARGEST)).mean(axis=0)
        return np.asarray(np.log(share) - np.log1p(-share), dtype=np.float32)


STATES_A_ROW: Final = 6
MOST_STATES: Final = 12_000  # bounds the training time of a base model
END_SHARE: Final = 0.3  # share of the transitions that complete the schedule at once


class StateTransitions(NamedTuple):
    """States (by index) with the row of a successor, and the last step it has decided."""

    states: Indices
    rows: Matrix
    steps: Steps


@dataclass(frozen=True)
class _Block:
    """The rows of one task and sketch (`lines`), and the states drawn from them."""

    lines: Indices
    states: Indices
    real: Steps  # the steps after which rows differ, and the end
    rests: Steps


@dataclass(frozen=True)
class ValueIterationStates:
    """Partial schedules (a row and a step), and their completions' best measured label."""

    rows: Matrix
    at: Indices
    steps: Steps
    seen: Vector
    blocks: tuple[_Block, ...]

    def draw_transitions(self, rng: np.random.Generator, *, to_the_end: bool) -> StateTransitions:
        """Continue each state with decisions of a random row of its task and sketch.

        Leave out invalid successors. With `to_the_end`, all successors are complete.
        """
        parts: list[StateTransitions] = []
        for block in self.blocks:
            steps = self.steps[block.states]
            first = np.searchsorted(block.real, steps, side="right")
            next_steps = block.real[rng.integers(first, len(block.real))]
            is_end = to_the_end | (rng.random(len(steps)) < END_SHARE)
            end_steps = np.where(is_end, LAST, next_steps)
            donors = self.rows[rng.choice(block.lines, size=len(steps))]
            origins = self.rows[self.at[block.states]]
            new_rows, is_valid = continue_prefixes(origins, donors, steps, end_steps, block.rests)
            parts.append(StateTransitions(block.states[is_valid], new_rows[is_valid], end_steps[is_valid]))
        return StateTransitions(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def draw_states(
    rows: Matrix, labels: Vector, groups: Groups, rng: np.random.Generator
) -> ValueIterationStates:
    """Draw some partial schedules from each row whose derived columns can be recomputed."""
    is_reproducible = has_reproducible_columns(rows)
    usable = np.flatnonzero(is_reproducible) if is_reproducible.any() else np.arange(len(rows))
    sample = np.sort(rng.permutation(usable)[:MOST_STATES])
    rows, labels, groups = rows[sample], labels[sample], groups[sample]
    sketch = number_task_sketches(rows, groups)
    index = np.repeat(np.arange(len(rows)), max(1, min(STATES_A_ROW, MOST_STATES // len(rows))))
    steps, blocks = np.empty(len(index), dtype=np.int64), []
    for lines in iterate_group_rows(sketch):
        block = _Block(
            lines,
            np.flatnonzero(np.isin(index, lines)),
            find_differing_steps(rows[lines]),
            find_outermost_columns(rows[lines]),
        )
        steps[block.states] = np.append(-1, block.real)[rng.integers(len(block.real), size=len(block.states))]
        blocks.append(block)
    # Per row and step: the best label of rows with the same decisions so far.
    order = DECIDED[np.argsort(STEP[DECIDED])]
    prefix_hashes = np.column_stack([np.zeros(len(rows)), hashes(rows[:, order])])
    best_by_step = np.empty(prefix_hashes.shape, dtype=np.float32)
    for column in range(prefix_hashes.shape[1]):
        same = number_distinct_keys(np.column_stack([sketch, prefix_hashes[:, column]]))
        group_best = np.full(same.max() + 1, -np.inf, dtype=np.float32)
        np.maximum.at(group_best, same, labels)
        best_by_step[:, column] = group_best[same]
    best_labels = best_by_step[index, steps + 1]
    return ValueIterationStates(rows, index, steps, best_labels, tuple(blocks))


SWEEPS: Final = 4
OPTIONS: Final = 6  # transitions tried from each state


class ValueModel(PrefixBoosters, ValuesPrefixes):
    """Scores partial schedules by their best completion, learned by value iteration.

    After "Value Learning for Throughput Optimization of Deep Neural Networks" (MLSys'21):
    the value of a partial schedule is the score of its best completion, so a beam search
    can rank prefixes without completing them. States are prefixes of measured candidates. A
    state's target is the maximum of the best label measured among its completions and the
    values, from the previous sweep, of successors by sampled decisions; complete schedules
    are valued by the model of full schedules.

    The paper trains an LSTM over the stages of a pipeline, and measures more during
    training. Here a step is a tile factor of one task, boosters treat open decisions as
    missing values, and only rows of the dataset are used. A step may make several decisions
    at once, so a few sweeps propagate values from the last step to the first.
    """

    KIND: ClassVar[str] = "value"
    opener: ClassVar[str | None] = "beam"

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        self._whole.fit(features, labels, groups, seed=seed)
        self._boosters = []
        if len(labels):
            rng = np.random.default_rng([seed, 1])
            states = draw_states(replace_nonfinite(features), labels, groups, rng)
            state_rows = mask_undecided_columns(states.rows[states.at], states.steps)
            boosters: list[xgboost.Booster] = []
            for sweep in range(SWEEPS):
                best = np.full(len(states.at), -np.inf, dtype=np.float32)
                for _ in range(OPTIONS):
                    moves = states.draw_transitions(rng, to_the_end=not boosters)
                    values = self._values(
                        boosters, mask_undecided_columns(moves.rows, moves.steps), moves.steps >= LAST
                    )
                    best[moves.states] = np.maximum(best[moves.states], values)
                target = np.maximum(states.seen, best)
                target = np.minimum(target, np.float32(0.0))
                data, weight = make_quantile_matrix(state_rows, target), weight_fast_rows(target)
                boosters = [
                    train_booster(data, weight, rng) for _ in range(MEMBERS if sweep == SWEEPS - 1 else 1)
                ]
            self._boosters = boosters

    def _values(
        self, boosters: list[xgboost.Booster], rows: Matrix, is_complete: NDArray[np.bool_]
    ) -> Vector:
        values = np.empty(len(rows), dtype=np.float32)
        if is_complete.any():
            values[is_complete] = self._whole.predict(rows[is_complete]).mean
        if not is_complete.all():
            values[~is_complete] = member_scores(boosters, rows[~is_complete]).mean(axis=0)
        return values

    def score_prefixes(self, features: Matrix) -> Vector:
        if not self._boosters:
            return self._whole.predict(features).mean
        is_complete = np.asarray(~np.isnan(features).any(axis=1))
        return self._values(self._boosters, np.clip(features, -LARGEST, LARGEST), is_complete)
