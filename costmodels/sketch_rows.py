"""Rows of the view `decisions` by the task and the sketch that they are of."""

import numpy as np

from costmodels.base import Column, Groups, Matrix
from costmodels.columns import SHARED
from costmodels.prefixes import DECIDED, LAST, STEP, Steps


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
