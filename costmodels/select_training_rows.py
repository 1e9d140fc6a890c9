"""Select training rows of a base model that are uncertain, representative and diverse."""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from mallorn.costmodels.base import Groups, Indices, Matrix, Vector
from mallorn.costmodels.ensemble_spread import bootstrap_counts, replace_nonfinite, weight_fast_rows
from mallorn.costmodels.metrics import iterate_group_rows
from mallorn.costmodels.xgboost_models import make_quantile_matrix, member_scores, train_booster

BATCHES: Final = 4  # the first takes equally many rows of each task, the others are scored
COMMITTEE: Final = 3
LOOKED_AT: Final = 4096  # rows scored per batch, and rows to which distances are measured
NEIGHBOURS: Final = 256  # sampled rows for estimating density
DIRECTIONS: Final = 16  # random projections for distances

Scores = NDArray[np.float64]


def select_evenly(groups: Groups, count: int, rng: np.random.Generator) -> Indices:
    """Return `count` random rows, as evenly spread over the tasks as possible."""
    shuffled = [rng.permutation(lines) for lines in iterate_group_rows(groups)]
    turns = np.concatenate([np.arange(len(lines)) for lines in shuffled])
    order = np.lexsort((rng.random(len(turns)), turns))
    return np.sort(np.concatenate(shuffled)[order[:count]])


def select_uncertain_diverse_rows(
    rows: Matrix, labels: Vector, groups: Groups, count: int, rng: np.random.Generator
) -> Indices:
    """Select rows in batches as in TCL: by a committee's disagreement, density, and
    distance.

    The label of a row is not used before the row is selected. The first batch covers every
    task, if it has as many rows as there are tasks.
    """
    if count >= len(rows):
        return np.arange(len(rows))
    rows = replace_nonfinite(rows)
    spread = rows.std(axis=0)
    even_rows = (rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1)
    places = np.asarray(even_rows @ rng.normal(size=(rows.shape[1], DIRECTIONS)), dtype=np.float32)
    parts = [-(-count * part // BATCHES) for part in range(1, BATCHES + 1)]
    selection = select_evenly(groups, parts[0], rng)
    for count_before, count_after in pairwise(parts):
        remaining = np.setdiff1d(np.arange(len(rows)), selection)
        remaining = rng.permutation(remaining)[: max(LOOKED_AT, count_after - count_before)]
        # Disagreement of boosters that are fit to different bootstraps of the selected rows.
        data, weight = (
            make_quantile_matrix(rows[selection], labels[selection]),
            weight_fast_rows(labels[selection]),
        )
        committee = [
            train_booster(data, counts * weight, rng)
            for counts in bootstrap_counts(rng, len(selection), COMMITTEE)
        ]
        doubt = _ranks(member_scores(committee, rows[remaining]).std(axis=0))
        sample = rng.choice(remaining, min(NEIGHBOURS, len(remaining)))
        crowd = _ranks(-cdist(places[remaining], places[sample]).mean(axis=1))
        distance = _ranks(cdist(places[remaining], places[selection[-LOOKED_AT:]]).min(axis=1))
        scores = doubt + crowd + distance
        best = remaining[np.argsort(-scores, kind="stable")[: count_after - count_before]]
        selection = np.sort(np.concatenate([selection, best]))
    return selection


def _ranks(values: NDArray[np.floating]) -> Scores:
    return np.asarray((rankdata(values) - 1) / max(1, len(values) - 1))
