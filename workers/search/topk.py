"""The best by score, plus a few random ones, so that a wrong model gets corrected."""

import numpy as np
from numpy.typing import NDArray

from workers.search.sampler import BatchSampler, ScoredPool


class TopK(BatchSampler):
    """Takes the most promising; a share `epsilon` comes from the rest of the pool, whatever its score."""

    def __init__(self, epsilon: float = 0.05, *, optimism: float = 0.5) -> None:
        self.epsilon = epsilon
        self.optimism = optimism

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        ranked = np.argsort(-pool.promise(self.optimism), kind="stable")
        explored = rng.binomial(min(count, len(pool)), self.epsilon)
        best, rest = np.split(ranked, [max(0, min(count, len(pool)) - explored)])
        return np.concatenate([best, rng.permutation(rest)[:explored]]).astype(np.int64)
