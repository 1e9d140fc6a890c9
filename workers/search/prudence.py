"""Penalties for candidates that are likely to fail or slow to build."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from costmodels.base import Prediction
from workers.search.base import Trial
from workers.search.build_times import learn_build_times
from workers.search.feasibility import learn_feasibility
from workers.search.sampler import ScoredPool
from workers.search.space import Space

# Builds up to this many times the median cost nothing; beyond, each doubling costs PRICE of score.
PATIENT: Final = 3.0
PRICE: Final = 0.3
# A candidate stays in the pool with the probability that this many like it would all work.
CAUTION: Final = 2


def prudent(space: Space, history: Sequence[Trial], pool: ScoredPool, rng: np.random.Generator) -> ScoredPool:
    """The pool, thinned where candidates are likely to fail, with scores lowered for long builds.

    Nothing is excluded: some candidates stay even in a region that was judged wrongly, so it is tried again.
    Failures do not change scores: ranked by safety, a search would find the safest and not the fastest.
    """
    if not len(pool):
        return pool
    mean = pool.prediction.mean.astype(np.float64)
    if (times := learn_build_times(space, history)) is not None:
        mean -= PRICE * np.maximum(0.0, times.excess(pool.features) - np.log(PATIENT)) / np.log(2.0)
    priced = replace(pool, prediction=Prediction(mean.astype(np.float32), pool.prediction.std))
    if (feasibility := learn_feasibility(space, history)) is None:
        return priced
    working = 1.0 - feasibility.failing(pool.features)
    return priced.only(np.flatnonzero(rng.random(len(pool)) < working**CAUTION))
