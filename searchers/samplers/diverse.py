"""Selects a batch of high scores and diversity by a greedy determinantal point process."""

import numpy as np

from costmodels.base import Column, Indices
from searchers.batch_sampler import BatchSampler, ScoredPool
from searchers.feature_scaling import Points, scaled, squared_distances


class Diverse(BatchSampler):
    """Takes, one by one, the candidate that most increases a determinant, which measures
    score and distance. The kernel is quality x similarity x quality; `weight` balances
    score against distance."""

    def __init__(self, optimism: float = 0.5, *, considered: int = 12, weight: float = 2.0) -> None:
        self.optimism = optimism
        self.considered = considered
        self.weight = weight

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        promise = pool.promise(self.optimism).astype(np.float64)
        order = np.argsort(-promise, kind="stable")
        near_top = order[: self.considered * count]
        if len(near_top) < 2 or len(near_top) <= count:
            return near_top[:count]
        lead = promise[near_top] - promise[near_top[0]]
        points = scaled(pool.features[near_top])
        lines = near_top[_volume(points, self.weight * lead, count)]
        remaining = order[~np.isin(order, lines)]
        return np.concatenate([lines, remaining[: count - len(lines)]]).astype(np.int64)


def _volume(points: Points, log_quality: Column, count: int) -> Indices:
    distance = squared_distances(points, points)
    similar = np.exp(-distance / (2 * max(1e-12, float(np.median(distance)))))
    remaining = np.ones(len(points))  # squared volume that a point would add
    factor = np.zeros((count, len(points)))
    lines: list[int] = []
    while len(lines) < count:
        gain = log_quality + 0.5 * np.log(np.maximum(remaining, 1e-12))
        gain[lines] = -np.inf
        best = int(gain.argmax())
        step = len(lines)
        root = np.sqrt(max(remaining[best], 1e-12))
        factor[step] = (similar[best] - factor[:step, best] @ factor[:step]) / root
        remaining = np.maximum(0.0, remaining - factor[step] ** 2)
        lines.append(best)
    return np.array(lines, dtype=np.int64)
