"""One promising candidate of each cluster, or one made up in its place (Chameleon's adaptive sampling).

What is made up has the most frequent settings of each knob.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from costmodels.base import Indices
from searchers.batch_sampler import ScoredPool, Synthesiser
from searchers.feature_scaling import Points, scaled, squared_distances
from searchers.space import Candidate, Sketch, Space

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


Setting = tuple[int, ...]


def synthesised(sketch: Sketch, among: Sequence[Candidate]) -> Iterator[Candidate]:
    """The most frequent setting of each knob among candidates of a sketch; the first of equals.

    Then the same with one knob at its second setting, the most frequent of those first. A tile is one knob
    with all its factors, so what is made up is well-formed.
    """
    knobs = [
        Counter(each.decisions[columns] for each in among).most_common(2) for columns, _ in sketch.places
    ]
    best = [settings[0][0] for settings in knobs]
    yield _joined(sketch, best)
    seconds = [(at, *settings[1]) for at, settings in enumerate(knobs) if len(settings) > 1]
    for at, setting, _ in sorted(seconds, key=lambda second: -second[2]):
        yield _joined(sketch, [*best[:at], setting, *best[at + 1 :]])


def _joined(sketch: Sketch, settings: Sequence[Setting]) -> Candidate:
    return Candidate(sketch.key, tuple(value for setting in settings for value in setting))


class Clustered(Synthesiser):
    """Clusters the most promising candidates and takes the medoids; the rest of the batch are the best.

    Chameleon measures the centroids of what was visited, measured candidates among it. The number of clusters
    doubles while that cuts the loss by a factor `worth` (its knee). A centroid that was measured before is
    replaced by a candidate that has the most frequent setting of each knob, here among the members of its
    cluster and not among all; where that is known too, one knob takes its second. Centres are medoids: a mean
    of tiles is no tile. Chameleon clusters by the two knobs with most options, here all features count.
    """

    def __init__(self, optimism: float = 0.5, *, considered: int = 12, worth: float = 1.25) -> None:
        self.optimism = optimism
        self.considered = considered
        self.worth = worth

    def choose(self, pool: ScoredPool, count: int, rng: np.random.Generator) -> Indices:
        promise = pool.promise(self.optimism)
        ranked = np.argsort(-promise, kind="stable")
        if count <= 1 or len(pool) <= count:
            return ranked[:count]
        near_top = ranked[: self.considered * count]
        points = scaled(pool.features[near_top])
        medoids = near_top[self._clustered(pool, near_top, count, rng).medoids(points)]
        others = ranked[~np.isin(ranked, medoids)]
        chosen = np.concatenate([medoids, others[: count - len(medoids)]])
        return chosen[np.argsort(-promise[chosen], kind="stable")].astype(np.int64)

    def compose(
        self, space: Space, pool: ScoredPool, measured: ScoredPool, count: int, rng: np.random.Generator
    ) -> list[Candidate]:
        if count <= 1 or len(pool) <= count:
            return []
        seen = pool.beside(measured)
        promise = seen.promise(self.optimism)
        ranked = np.argsort(-promise, kind="stable")
        near_top = ranked[: self.considered * count]
        clustering = self._clustered(seen, near_top, count, rng)
        known, batch = set(measured.candidates), dict[Candidate, float]()
        for members in _by_cluster(clustering, scaled(seen.features[near_top]), near_top):
            cluster = [seen.candidates[at] for at in members.tolist()]
            medoid, *others = cluster
            alike = [each for each in cluster if each.sketch == medoid.sketch]
            # Who may speak for a cluster: its medoid, what is made up, then whoever is nearest.
            speakers = chain([medoid], synthesised(space.by_key[medoid.sketch], alike), others)
            if speaker := next((each for each in speakers if each not in known and each not in batch), None):
                batch[speaker] = float(promise[members[0]])
        for at in ranked.tolist():
            if len(batch) < count and seen.candidates[at] not in known:
                batch.setdefault(seen.candidates[at], float(promise[at]))
        return sorted(batch, key=lambda candidate: -batch[candidate])

    def _clustered(
        self, pool: ScoredPool, lines: Indices, count: int, rng: np.random.Generator
    ) -> Clustering:
        return to_the_knee(scaled(pool.features[lines]), max(1, count // 2), self.worth, rng)


def _by_cluster(clustering: Clustering, points: Points, lines: Indices) -> Iterator[Indices]:
    """The members of each cluster as lines of the pool: its medoid, then the others, the nearest first."""
    for medoid in clustering.medoids(points).tolist():
        members = np.flatnonzero(clustering.member == clustering.member[medoid])
        away = squared_distances(points[members], points[medoid : medoid + 1])[:, 0]
        away[members == medoid] = -1.0
        yield lines[members[np.argsort(away, kind="stable")]]
