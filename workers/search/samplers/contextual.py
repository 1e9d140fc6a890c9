"""Explores as long as the model is unsure (AdaTune's contextual exploration)."""

import numpy as np
from numpy.typing import NDArray

from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.topk import TopK


class Contextual(BatchSampler):
    """As `topk`, but the share that is drawn from the whole pool follows the model's own uncertainty.

    Scores are logs of speed, so exp(score) is speed relative to the task's best, and times the spread it is
    the uncertainty of that speed: its mean over the pool is the share, within bounds.
    """

    def __init__(self, optimism: float = 0.5, *, least: float = 0.02, most: float = 0.5) -> None:
        self.optimism = optimism
        self.least = least
        self.most = most

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return TopK(self.share(pool), optimism=self.optimism).choose(pool, count, rng)

    def share(self, pool: ScoredPool) -> float:
        """Which share of the batch is explored."""
        if not len(pool):
            return self.least
        speed = np.exp(np.minimum(pool.prediction.mean, 0.0))
        return float(np.clip(np.mean(speed * pool.prediction.std), self.least, self.most))
