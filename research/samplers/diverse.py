"""Selects a batch of high scores and diversity by a greedy determinantal point process."""

import numpy as np

from mallorn.costmodels.base import Indices
from mallorn.research.searchers.feature_scaling import squared_distances, standardize_features
from mallorn.searchers.sampler import Sampler, ScoredPool


class Diverse(Sampler):
    """Takes, one by one, the candidate that most increases a determinant, which measures
    score and distance. The kernel is quality x similarity x quality; `weight` balances
    score against distance."""

    def __init__(self, optimism: float = 0.5, *, considered: int = 12, weight: float = 2.0) -> None:
        self.optimism, self.considered, self.weight = optimism, considered, weight

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        promise = pool.optimistic_scores(self.optimism).astype(np.float64)
        order = np.argsort(-promise, kind="stable")
        near_top = order[: self.considered * count]
        if len(near_top) < 2 or len(near_top) <= count:
            return near_top[:count]
        lead = promise[near_top] - promise[near_top[0]]
        points = standardize_features(pool.features[near_top])
        distance = squared_distances(points, points)
        similar = np.exp(-distance / (2 * max(1e-12, float(np.median(distance)))))
        volume = np.ones(len(points))  # squared volume that a point would add
        factor = np.zeros((count, len(points)))
        picks: list[int] = []
        while len(picks) < count:
            gain = self.weight * lead + 0.5 * np.log(np.maximum(volume, 1e-12))
            gain[picks] = -np.inf
            best = int(gain.argmax())
            step = len(picks)
            root = np.sqrt(max(volume[best], 1e-12))
            factor[step] = (similar[best] - factor[:step, best] @ factor[:step]) / root
            volume = np.maximum(0.0, volume - factor[step] ** 2)
            picks.append(best)
        lines = near_top[np.array(picks, dtype=np.int64)]
        remaining = order[~np.isin(order, lines)]
        return np.concatenate([lines, remaining[: count - len(lines)]]).astype(np.int64)
