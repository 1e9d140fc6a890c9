"""Splits into training and test rows that leak nothing from one side to the other.

A task is a workload in any measuring context: identify tasks by workload, not by training group.
"""

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

import numpy as np

from costmodels.base import Groups, Indices, Matrix, Vector
from costmodels.labels import of_times, timed
from costmodels.metrics import members

Networks = Mapping[str, Set[int]]  # the tasks of each network


class Split(NamedTuple):
    """Indices of training rows and of test rows, in order."""

    train: Indices
    test: Indices


def within_task(tasks: Groups, features: Matrix, *, share: float = 0.6) -> Split:
    """Train on the first rows of each task, as a job would; candidates seen there are not tested again."""
    late = np.zeros(len(tasks), dtype=np.bool_)
    for lines in members(tasks):
        late[lines[int(len(lines) * share) :]] = True
    train, test = np.flatnonzero(~late), np.flatnonzero(late)
    known = set(_identities(tasks, features, train))
    fresh = [identity not in known for identity in _identities(tasks, features, test)]
    return Split(train, test[np.array(fresh, dtype=np.bool_)])


def newest(groups: Groups, limit: int, *, seed: int) -> Split:
    """Hold out the newest fifth of each group (rows come oldest first); both sides are thinned."""
    late = np.zeros(len(groups), dtype=np.bool_)
    for lines in members(groups):
        late[lines[len(lines) - len(lines) // 5 :]] = True
    rng = np.random.default_rng(seed)
    sides = [rng.permutation(np.flatnonzero(side))[:limit] for side in (~late, late)]
    return Split(np.sort(sides[0]), np.sort(sides[1]))


def by_task(tasks: Groups, *, seed: int, folds: int | None = None) -> Iterator[Split]:
    """Each task is tested once, by a model of the other folds; by default a fold is one task."""
    names = np.random.default_rng(seed).permutation(np.unique(tasks))
    for fold in np.array_split(names, min(folds or len(names), len(names))):
        held_out = np.isin(tasks, fold)
        yield Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))


def by_network(tasks: Groups, networks: Networks) -> Iterator[tuple[str, Split]]:
    """Each network is tested by a model that saw none of its tasks, not even shared ones."""
    for name, own in sorted(networks.items()):
        held_out = np.isin(tasks, sorted(own))
        yield name, Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))


def by_host(hosts: Groups) -> Iterator[Split]:
    """Each host is tested by a model of all other hosts' rows; rows of no host (-1) are on neither side."""
    for host in np.unique(hosts[hosts >= 0]):
        yield Split(np.flatnonzero((hosts >= 0) & (hosts != host)), np.flatnonzero(hosts == host))


def rebased(labels: Vector, groups: Groups) -> Vector:
    """Labels relative to the best of these rows, so that the best held-out row stays unknown."""
    answer = labels.copy()
    ran = timed(labels)
    for lines in members(groups):
        good = lines[ran[lines]]
        if len(good):
            answer[good] = of_times(labels[good] - labels[good].max())
    return answer


def scrambled(labels: Vector, groups: Groups, *, seed: int) -> Vector:
    """Labels shuffled within each group: a model of these must order at chance."""
    rng = np.random.default_rng(seed)
    answer = labels.copy()
    for lines in members(groups):
        answer[lines] = rng.permutation(labels[lines])
    return answer


def _identities(tasks: Groups, features: Matrix, rows: Indices) -> Iterator[tuple[int, bytes]]:
    return ((int(tasks[row]), features[row].tobytes()) for row in rows)
