"""Takes the best by score, plus a few random ones, so that a wrong model gets corrected."""

import numpy as np

from costmodels.base import Indices
from searchers.batch_sampler import BatchSampler, ScoredPool


class TopK(BatchSampler):
    """Takes the most promising; a share `epsilon` comes from the rest of the pool, whatever its score."""

    def __init__(self, epsilon: float = 0.05, *, optimism: float = 0.5) -> None:
        self.epsilon = epsilon
        self.optimism = optimism

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        ranked = np.argsort(-pool.promise(self.optimism), kind="stable")
        explored = rng.binomial(min(count, len(pool)), self.epsilon)
        best, rest = np.split(ranked, [max(0, min(count, len(pool)) - explored)])
        return np.concatenate([best, rng.permutation(rest)[:explored]]).astype(np.int64)


class Contextual(BatchSampler):
    """As `topk`, but the random share follows the model's uncertainty.

    exp(score) is the speed relative to the task's best; times the spread it is the uncertainty of that speed.
    Its mean over the pool, within bounds, is the random share.
    """

    def __init__(self, optimism: float = 0.5, *, least: float = 0.02, most: float = 0.5) -> None:
        self.optimism = optimism
        self.least = least
        self.most = most

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        return TopK(self.share(pool), optimism=self.optimism).choose(pool, count, rng)

    def share(self, pool: ScoredPool) -> float:
        """The share of the batch that is explored."""
        if not len(pool):
            return self.least
        speed = np.exp(np.minimum(pool.prediction.mean, 0.0))
        return float(np.clip(np.mean(speed * pool.prediction.std), self.least, self.most))
