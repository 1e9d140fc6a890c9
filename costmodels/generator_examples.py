"""Training examples of a generator: decisions of good schedules, and alternatives to them."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from costmodels.base import Column, Groups, Indices, Matrix, Vector
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
from costmodels.tiling_columns import SHARED

GOOD_A_TASK: Final = 16
NEAR_THE_BEST: Final = 0.5  # label units: good schedules are at most 1.65 times slower
OTHERS: Final = 4  # alternatives (negative examples) per decision of a good schedule
MOST_GOOD: Final = 1200  # good schedules; bounds the training time of a base model


class DecisionExamples(NamedTuple):
    """Partial rows, whether each one's last decision is that of a good schedule, and weights."""

    rows: Matrix
    taken: Vector
    weights: Column


def choices_of(rows: Matrix, labels: Vector, groups: Groups, rng: np.random.Generator) -> DecisionExamples:
    """Return decisions of each task's best schedules, and alternatives from other rows."""
    is_reproducible = reproducible(rows)
    usable = np.flatnonzero(is_reproducible) if is_reproducible.any() else np.arange(len(rows))
    rows, labels, groups = rows[usable], labels[usable], groups[usable]
    fastest = [lines[np.argsort(-labels[lines], kind="stable")[:GOOD_A_TASK]] for lines in members(groups)]
    good_by_task = [best[labels[best] >= labels[best[0]] - NEAR_THE_BEST] for best in fastest]
    good = rng.permutation(np.concatenate(good_by_task))[:MOST_GOOD]
    parts = [
        part
        for lines in members(by_sketch(rows, groups))
        for part in _of_sketch(rows, labels, lines, np.intersect1d(lines, good), rng)
    ]
    if not parts:
        return DecisionExamples(rows[:0], labels[:0], np.empty(0))
    return DecisionExamples(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def _of_sketch(
    rows: Matrix, labels: Vector, lines: Indices, good: Indices, rng: np.random.Generator
) -> Iterator[DecisionExamples]:
    if not len(good):
        return
    rests, weight = outermost(rows[lines]), np.exp(labels[good].astype(np.float64))
    real = real_steps(rows[lines])
    for before, after in pairwise([-1, *(real[1:] - 1).tolist(), LAST]):
        yield DecisionExamples(prefixes(rows[good], after), np.ones(len(good), np.float32), weight)
        yield _alternatives(rows, good, weight, rng.choice(lines, OTHERS * len(good)), (before, after), rests)


def _alternatives(
    rows: Matrix, good: Indices, weight: Column, donors: Indices, span: tuple[int, int], rests: Steps
) -> DecisionExamples:
    """Return the good schedules with the decisions in a span of steps taken from donors."""
    originals, shares = np.repeat(rows[good], OTHERS, axis=0), np.repeat(weight / OTHERS, OTHERS)
    steps, until = (np.full(len(originals), index) for index in span)
    mixed, is_valid = continued(originals, rows[donors], steps, until, rests)
    decided = np.flatnonzero(is_valid)
    return DecisionExamples(
        prefixes(mixed[decided], span[1]), np.zeros(len(decided), np.float32), shares[decided]
    )


def by_sketch(rows: Matrix, groups: Groups) -> Groups:
    """Return a group number per row, one for each sketch of each task."""
    return numbered(np.column_stack([numbered(groups), hashes(rows[:, :SHARED])[:, -1]]))


def real_steps(rows: Matrix) -> Steps:
    """Return the decision steps at which these rows of one sketch differ, and the last step."""
    varies = (rows[:, DECIDED] != rows[0, DECIDED]).any(axis=0)
    return np.union1d(STEP[DECIDED[varies]], [LAST])


def hashes(rows: Matrix) -> Column:
    """Return a hash of every prefix (first 1, 2, ... columns) of each row."""
    weights = np.random.default_rng(0).normal(size=rows.shape[1])
    return np.asarray(np.cumsum(rows.astype(np.float64) * weights, axis=1))


def numbered(keys: Column | Groups) -> Groups:
    """Number distinct keys (values or lines of values) from 0; equal keys get equal numbers."""
    lines = keys.reshape(len(keys), -1)
    order = np.lexsort(lines.T)
    sorted_keys = lines[order]
    numbers = np.zeros(len(keys), dtype=np.int64)
    numbers[order[1:]] = np.cumsum((sorted_keys[1:] != sorted_keys[:-1]).any(axis=1))
    return numbers
