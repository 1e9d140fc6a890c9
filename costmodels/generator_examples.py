"""What a generator learns from: decisions of good schedules, beside others that they might have taken."""

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
NEAR_THE_BEST: Final = 0.5  # in units of the label: good schedules are at most 1.65 times as slow
OTHERS: Final = 4  # decisions that a good schedule might have taken, for each that it took
MOST_GOOD: Final = 1200  # schedules, so that learning costs no more for a base


class DecisionExamples(NamedTuple):
    """Rows decided up to a step; whether the last decision is that of a good schedule; what each weighs."""

    rows: Matrix
    taken: Vector
    weights: Column


def choices_of(rows: Matrix, labels: Vector, groups: Groups, rng: np.random.Generator) -> DecisionExamples:
    """Every decision of the best schedules of each task, beside decisions drawn from rows of their sketch."""
    fit = reproducible(rows)
    usable = np.flatnonzero(fit) if fit.any() else np.arange(len(rows))
    rows, labels, groups = rows[usable], labels[usable], groups[usable]
    fastest = [lines[np.argsort(-labels[lines], kind="stable")[:GOOD_A_TASK]] for lines in members(groups)]
    near = [best[labels[best] >= labels[best[0]] - NEAR_THE_BEST] for best in fastest]
    good = rng.permutation(np.concatenate(near))[:MOST_GOOD]
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
        yield _instead(rows, good, weight, rng.choice(lines, OTHERS * len(good)), (before, after), rests)


def _instead(
    rows: Matrix, good: Indices, weight: Column, donors: Indices, span: tuple[int, int], rests: Steps
) -> DecisionExamples:
    """The same schedules, with the decisions of a span of steps taken from others."""
    mine, whose = np.repeat(rows[good], OTHERS, axis=0), np.repeat(weight / OTHERS, OTHERS)
    steps, until = (np.full(len(mine), at) for at in span)
    mixed, possible = continued(mine, rows[donors], steps, until, rests)
    decided = np.flatnonzero(possible)
    return DecisionExamples(
        prefixes(mixed[decided], span[1]), np.zeros(len(decided), np.float32), whose[decided]
    )


def by_sketch(rows: Matrix, groups: Groups) -> Groups:
    """One number for each sketch of each task."""
    return numbered(np.column_stack([numbered(groups), hashes(rows[:, :SHARED])[:, -1]]))


def real_steps(rows: Matrix) -> Steps:
    """The steps that decide something in rows of one sketch, then the last one."""
    varies = (rows[:, DECIDED] != rows[0, DECIDED]).any(axis=0)
    return np.union1d(STEP[DECIDED[varies]], [LAST])


def hashes(rows: Matrix) -> Column:
    """A number for the first, the first two, ... columns of each row; equal for equal ones."""
    weights = np.random.default_rng(0).normal(size=rows.shape[1])
    return np.asarray(np.cumsum(rows.astype(np.float64) * weights, axis=1))


def numbered(keys: Column | Groups) -> Groups:
    """Equal keys (or lines of keys) as equal numbers, from zero."""
    lines = keys.reshape(len(keys), -1)
    order = np.lexsort(lines.T)
    sorted_keys = lines[order]
    numbers = np.zeros(len(keys), dtype=np.int64)
    numbers[order[1:]] = np.cumsum((sorted_keys[1:] != sorted_keys[:-1]).any(axis=1))
    return numbers
