"""One promising candidate of each cluster (Chameleon's adaptive sampling)."""

import numpy as np
from numpy.typing import NDArray

from workers.search.sampler import BatchSampler, ScoredPool
from workers.search.samplers.clusters import to_the_knee
from workers.search.scaling import scaled


class Clustered(BatchSampler):
    """Clusters the most promising candidates and takes the medoids; the rest of the batch are the best.

    The number of clusters doubles while that cuts the loss by a factor `worth` (Chameleon's knee). Medoids
    are candidates of the pool, unlike Chameleon's centres.
    """

    def __init__(self, optimism: float = 0.5, *, considered: int = 12, worth: float = 1.25) -> None:
        self.optimism = optimism
        self.considered = considered
        self.worth = worth

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        promise = pool.promise(self.optimism)
        ranked = np.argsort(-promise, kind="stable")
        if count <= 1 or len(pool) <= count:
            return ranked[:count]
        near_top = ranked[: self.considered * count]
        points = scaled(pool.features[near_top])
        clustering = to_the_knee(points, max(1, count // 2), self.worth, rng)
        medoids = near_top[clustering.medoids(points)]
        others = ranked[~np.isin(ranked, medoids)]
        chosen = np.concatenate([medoids, others[: count - len(medoids)]])
        return chosen[np.argsort(-promise[chosen], kind="stable")].astype(np.int64)
