"""Batch samplers that spread a batch over the pool's features: by clusters, or by a determinant."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import Indices
from mallorn.searchers.learning.exploring_learner import squared_distances
from mallorn.searchers.sampler import Sampler, ScoredPool, Synthesiser
from mallorn.searchers.space import Candidate, Matrix, Sketch, Space

Points = NDArray[np.float64]


def standardize_features(features: Matrix) -> Points:
    """Return standardised columns without constant ones; rows have a length of about 1."""
    columns = np.asarray(features, dtype=np.float64)
    deviation = columns.std(axis=0)
    varies = deviation > 1e-6
    if not varies.any():
        return np.zeros((len(columns), 1))
    standardised = (columns[:, varies] - columns[:, varies].mean(axis=0)) / deviation[varies]
    return np.asarray(standardised / np.sqrt(standardised.shape[1]))


STEPS: Final = 12


@dataclass(frozen=True, slots=True)
class Clustering:
    """The cluster of each point, and the sum of squared distances to the centres."""

    member: Indices
    centres: Points
    loss: float

    def medoids(self, points: Points) -> Indices:
        """Return the member nearest to the centre of each non-empty cluster."""
        clusters = np.arange(len(self.centres))
        distance = squared_distances(points, self.centres)
        distance[self.member[:, None] != clusters] = np.inf
        nearest: Indices = distance.argmin(axis=0)
        return nearest[np.isin(clusters, self.member)]


def k_means(points: Points, count: int, rng: np.random.Generator) -> Clustering:
    """Cluster points by Lloyd's algorithm, starting from k-means++."""
    starts = [int(rng.integers(len(points)))]
    distance = squared_distances(points, points[starts])[:, 0]
    while len(starts) < count:
        total = distance.sum()
        share = distance / total if total > 0 else np.full(len(points), 1 / len(points))
        starts.append(int(rng.choice(len(points), p=share)))
        distance = np.minimum(distance, squared_distances(points, points[starts[-1:]])[:, 0])
    centres = points[starts]
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


def cluster_to_knee(points: Points, limit: int, gain: float, rng: np.random.Generator) -> Clustering:
    """Double the number of clusters while that divides the loss (distances) by `gain`."""
    count = min(2, limit)
    best = k_means(points, count, rng)
    while count < limit and best.loss > 1e-9:
        count = min(2 * count, limit)
        finer = k_means(points, count, rng)
        if finer.loss * gain > best.loss:
            break
        best = finer
    return best


Setting = tuple[int, ...]


def combine_frequent_settings(sketch: Sketch, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Yield the candidate with each knob's (choice's) most frequent setting in `candidates`.

    Then yield it with one knob at its second most frequent setting, the most frequent of
    these first. A tile with all its factors is one knob, so the candidates are well-formed.
    """
    knobs = [
        Counter(candidate.decisions[columns] for candidate in candidates).most_common(2)
        for columns, _ in sketch.decision_slices
    ]
    best = [settings[0][0] for settings in knobs]
    yield _joined(sketch, best)
    seconds = [(knob, *settings[1]) for knob, settings in enumerate(knobs) if len(settings) > 1]
    for knob, setting, _ in sorted(seconds, key=lambda second: -second[2]):
        yield _joined(sketch, [*best[:knob], setting, *best[knob + 1 :]])


def _joined(sketch: Sketch, settings: Sequence[Setting]) -> Candidate:
    return Candidate(sketch.key, tuple(value for setting in settings for value in setting))


class Clustered(Synthesiser):
    """Clusters candidates of high score and takes each cluster's medoid; fills up with the best.

    Chameleon measures the centroids of all visited candidates, including measured ones. The
    number of clusters doubles while that reduces the loss by a factor `worth` (the knee).
    If a centroid was measured before, it is replaced by a synthesised candidate with the
    most frequent setting of each knob in its cluster; if that was measured too, one knob
    gets its second most frequent setting. Here centres are medoids, because a mean of tiles
    is not a tile, and all features cluster.
    """

    def __init__(self, optimism: float = 0.5, *, considered: int = 12, worth: float = 1.25) -> None:
        self.optimism, self.considered, self.worth = optimism, considered, worth

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        promise = pool.optimistic_scores(self.optimism)
        order = np.argsort(-promise, kind="stable")
        if count <= 1 or len(pool) <= count:
            return order[:count]
        near_top = order[: self.considered * count]
        points = standardize_features(pool.features[near_top])
        clustering = cluster_to_knee(points, max(1, count // 2), self.worth, rng)
        medoids = near_top[clustering.medoids(points)]
        remaining = order[~np.isin(order, medoids)]
        lines = np.concatenate([medoids, remaining[: count - len(medoids)]])
        return lines[np.argsort(-promise[lines], kind="stable")].astype(np.int64)

    def compose(
        self, space: Space, pool: ScoredPool, measured_pool: ScoredPool, count: int, rng: np.random.Generator
    ) -> list[Candidate]:
        if count <= 1 or len(pool) <= count:
            return []
        both_pools = pool.joined_with(measured_pool)
        promise = both_pools.optimistic_scores(self.optimism)
        order = np.argsort(-promise, kind="stable")
        near_top = order[: self.considered * count]
        points = standardize_features(both_pools.features[near_top])
        clustering = cluster_to_knee(points, max(1, count // 2), self.worth, rng)
        measured_candidates, batch = set(measured_pool.candidates), dict[Candidate, float]()
        for medoid_line in clustering.medoids(points).tolist():
            # The members of a cluster as lines of the pool: the medoid, then others by distance.
            members = np.flatnonzero(clustering.member == clustering.member[medoid_line])
            distances = squared_distances(points[members], points[medoid_line : medoid_line + 1])[:, 0]
            distances[members == medoid_line] = -1.0
            lines = near_top[members[np.argsort(distances, kind="stable")]]
            cluster = [both_pools.candidates[line] for line in lines.tolist()]
            medoid, *remaining = cluster
            same_sketch = [member for member in cluster if member.sketch == medoid.sketch]
            # Represent a cluster by its medoid, a synthetic candidate or its nearest member.
            representatives = chain(
                [medoid], combine_frequent_settings(space.by_key[medoid.sketch], same_sketch), remaining
            )
            new = (c for c in representatives if c not in measured_candidates and c not in batch)
            if representative := next(new, None):
                batch[representative] = float(promise[lines[0]])
        for line in order.tolist():
            if len(batch) < count and both_pools.candidates[line] not in measured_candidates:
                batch.setdefault(both_pools.candidates[line], float(promise[line]))
        return sorted(batch, key=lambda candidate: -batch[candidate])


class Diverse(Sampler):
    """Takes, one by one, the candidate that most increases a determinant. The kernel is
    quality x similarity x quality; `weight` balances score against distance."""

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
