"""Which rows a base learns from: those it is unsure of, that stand for many, and unlike those it has."""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from costmodels.base import Groups, Indices, Matrix, Vector
from costmodels.ensemble_spread import draws, finite, importance
from costmodels.metrics import members
from costmodels.xgboost_ensemble import as_data, grow, opinions

BATCHES: Final = 4  # the first is even, the others are chosen one after the other
COMMITTEE: Final = 3
LOOKED_AT: Final = 4096  # rows that could come next, in each batch
NEIGHBOURS: Final = 256  # rows that crowds are counted among
DIRECTIONS: Final = 16  # that distances are measured along

Scores = NDArray[np.float64]


def even(groups: Groups, count: int, rng: np.random.Generator) -> Indices:
    """As many rows of every task, as far as it has them, at random."""
    shuffled = [rng.permutation(lines) for lines in members(groups)]
    turns = np.concatenate([np.arange(len(lines)) for lines in shuffled])
    order = np.lexsort((rng.random(len(turns)), turns))
    return np.sort(np.concatenate(shuffled)[order[:count]])


def chosen(rows: Matrix, labels: Vector, groups: Groups, count: int, rng: np.random.Generator) -> Indices:
    """After TCL: batch by batch, by a committee's doubt, by the crowd around a row, and by its distance.

    No label of a row is looked at before the row is chosen. Few tasks are left out only where there are more
    tasks than rows to choose.
    """
    if count >= len(rows):
        return np.arange(len(rows))
    rows = finite(rows)
    spread = rows.std(axis=0)
    even_rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    places = np.asarray(even_rows @ rng.normal(size=(rows.shape[1], DIRECTIONS)), dtype=np.float32)
    parts = [-(-count * part // BATCHES) for part in range(1, BATCHES + 1)]
    known = even(groups, parts[0], rng)
    for before, after in pairwise(parts):
        left = np.setdiff1d(np.arange(len(rows)), known)
        left = rng.permutation(left)[: max(LOOKED_AT, after - before)]
        # The committee's doubt: how much boosters fitted to different draws of the known rows differ.
        data, weight = as_data(rows[known], labels[known]), importance(labels[known])
        committee = [grow(data, counts * weight, rng) for counts in draws(rng, len(known), COMMITTEE)]
        doubt = _ranks(opinions(committee, rows[left]).std(axis=0))
        others = rng.choice(left, min(NEIGHBOURS, len(left)))
        crowd = _ranks(-cdist(places[left], places[others]).mean(axis=1))
        distance = _ranks(cdist(places[left], places[known[-LOOKED_AT:]]).min(axis=1))
        scores = doubt + crowd + distance
        best = left[np.argsort(-scores, kind="stable")[: after - before]]
        known = np.sort(np.concatenate([known, best]))
    return known


def _ranks(values: NDArray[np.floating]) -> Scores:
    """From 0, for the least, to 1; equal values have equal ranks."""
    return np.asarray((rankdata(values) - 1) / max(1, len(values) - 1))
