"""Explores by the model's uncertainty (AdaTune's contextual exploration)."""

import numpy as np
from numpy.typing import NDArray

from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.topk import TopK


class Contextual(BatchSampler):
    """As `topk`, but the random share follows the model's uncertainty.

    exp(score) is the speed relative to the task's best; times the spread it is the uncertainty of that speed.
    Its mean over the pool, within bounds, is the random share.
    """

    def __init__(self, optimism: float = 0.5, *, least: float = 0.02, most: float = 0.5) -> None:
        self.optimism = optimism
        self.least = least
        self.most = most

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return TopK(self.share(pool), optimism=self.optimism).choose(pool, count, rng)

    def share(self, pool: ScoredPool) -> float:
        """The share of the batch that is explored."""
        if not len(pool):
            return self.least
        speed = np.exp(np.minimum(pool.prediction.mean, 0.0))
        return float(np.clip(np.mean(speed * pool.prediction.std), self.least, self.most))
