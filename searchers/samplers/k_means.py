"""k-means with an automatic number of clusters."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from costmodels.base import Indices
from searchers.feature_scaling import Points, squared_distances

STEPS: Final = 12


@dataclass(frozen=True, slots=True)
class Clustering:
    """The cluster of each point, and the sum of squared distances to the centres."""

    member: Indices
    centres: Points
    loss: float

    def medoids(self, points: Points) -> Indices:
        """The point nearest to each centre of a non-empty cluster."""
        clusters = np.arange(len(self.centres))
        distance = squared_distances(points, self.centres)
        distance[self.member[:, None] != clusters] = np.inf
        nearest: Indices = distance.argmin(axis=0)
        return nearest[np.isin(clusters, self.member)]


def k_means(points: Points, count: int, rng: np.random.Generator) -> Clustering:
    """Lloyd's algorithm from k-means++ starts."""
    centres = points[_starts(points, count, rng)]
    for _ in range(STEPS):
        member = squared_distances(points, centres).argmin(axis=1)
        sizes = np.bincount(member, minlength=count)
        sums = np.zeros_like(centres)
        np.add.at(sums, member, points)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        if np.allclose(moved, centres):
            break
        centres = moved
    distance = squared_distances(points, centres)
    return Clustering(distance.argmin(axis=1), centres, float(distance.min(axis=1).sum()))


def to_the_knee(points: Points, most: int, worth: float, rng: np.random.Generator) -> Clustering:
    """The clustering at which doubling the clusters no longer cuts the loss by the factor `worth`."""
    count = min(2, most)
    best = k_means(points, count, rng)
    while count < most and best.loss > 1e-9:
        count = min(2 * count, most)
        finer = k_means(points, count, rng)
        if finer.loss * worth > best.loss:
            break
        best = finer
    return best


def _starts(points: Points, count: int, rng: np.random.Generator) -> list[int]:
    chosen = [int(rng.integers(len(points)))]
    distance = squared_distances(points, points[chosen])[:, 0]
    while len(chosen) < count:
        total = distance.sum()
        share = distance / total if total > 0 else np.full(len(points), 1 / len(points))
        chosen.append(int(rng.choice(len(points), p=share)))
        distance = np.minimum(distance, squared_distances(points, points[chosen[-1:]])[:, 0])
    return chosen
