"""Candidates of a made-up space, with what they were measured as."""

import numpy as np

from mallorn.costmodels.base import Matrix, Vector
from mallorn.costmodels.labels import labels
from mallorn.searchers.synthetic_space import SyntheticSpace

SPACE = SyntheticSpace(96, 64, 128)


def measured(count: int, seed: int = 0) -> tuple[Matrix, Vector]:
    candidates = SPACE.sample(np.random.default_rng(seed), count)
    trials = [SPACE.measure(candidate) for candidate in candidates]
    times, outcomes = [t.latency_us for t in trials], [t.outcome for t in trials]
    return SPACE.features(candidates), labels(times, np.zeros(count, dtype=np.int64), outcomes)


def ids(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)
