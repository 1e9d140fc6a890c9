"""What is learned from and what is judged: three splits, in which nothing leaks from one side to the other.

A task is a workload, whatever the context it was measured in: name tasks by workload, not by training group.
"""

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from costmodels.base import FAILED_LABEL, Matrix, Vector
from costmodels.metrics import Groups, members
from costmodels.training import timed

Indices = NDArray[np.int64]
Networks = Mapping[str, Set[int]]  # the tasks of each network


class Split(NamedTuple):
    """Rows to learn from and rows to be judged on, in their order."""

    train: Indices
    test: Indices


def within_task(tasks: Groups, features: Matrix, *, share: float = 0.6) -> Split:
    """Learn from the first rows of each task, as a job would; candidates met there are not judged again."""
    late = np.zeros(len(tasks), dtype=np.bool_)
    for lines in members(tasks):
        late[lines[int(len(lines) * share) :]] = True
    train, test = np.flatnonzero(~late), np.flatnonzero(late)
    known = set(_identities(tasks, features, train))
    fresh = [identity not in known for identity in _identities(tasks, features, test)]
    return Split(train, test[np.array(fresh, dtype=np.bool_)])


def newest(groups: Groups, limit: int, *, seed: int) -> Split:
    """Rows come oldest first: the newest fifth of each group is held out; both sides are thinned."""
    late = np.zeros(len(groups), dtype=np.bool_)
    for lines in members(groups):
        late[lines[len(lines) - len(lines) // 5 :]] = True
    rng = np.random.default_rng(seed)
    sides = [rng.permutation(np.flatnonzero(side))[:limit] for side in (~late, late)]
    return Split(np.sort(sides[0]), np.sort(sides[1]))


def by_task(tasks: Groups, *, seed: int, folds: int | None = None) -> Iterator[Split]:
    """Every task is judged once, by what was learned from other folds; a fold is one task unless told."""
    names = np.random.default_rng(seed).permutation(np.unique(tasks))
    for fold in np.array_split(names, min(folds or len(names), len(names))):
        held_out = np.isin(tasks, fold)
        yield Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))


def by_network(tasks: Groups, networks: Networks) -> Iterator[tuple[str, Split]]:
    """Every network is judged by what was learned without any of its tasks, shared ones among them."""
    for name, own in sorted(networks.items()):
        held_out = np.isin(tasks, sorted(own))
        yield name, Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))


def rebased(labels: Vector, groups: Groups) -> Vector:
    """Labels relative to the best of the rows at hand: what the best row held out is must not be known."""
    answer = labels.copy()
    ran = timed(labels)
    for lines in members(groups):
        good = lines[ran[lines]]
        answer[good] -= labels[good].max(initial=FAILED_LABEL) if len(good) else 0
    return answer


def scrambled(labels: Vector, groups: Groups, *, seed: int) -> Vector:
    """Labels dealt anew within each group: what is learned from them must order at chance."""
    rng = np.random.default_rng(seed)
    answer = labels.copy()
    for lines in members(groups):
        answer[lines] = rng.permutation(labels[lines])
    return answer


def _identities(tasks: Groups, features: Matrix, rows: Indices) -> Iterator[tuple[int, bytes]]:
    return ((int(tasks[row]), features[row].tobytes()) for row in rows)
