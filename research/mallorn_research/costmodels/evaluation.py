"""Split rows without leakage, fit a cost model on one part, and judge it on the other.

For splits, a task is a workload wherever it was measured: pass workload ids as tasks, not
the groups of training, which also separate hosts and TVM versions.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import CostModel, Groups, Indices, Matrix, Vector
from mallorn.costmodels.labels import clip_time_labels, is_time_label
from mallorn.costmodels.metrics import compare_pairs, iterate_group_rows, pairwise_accuracy
from mallorn_research.costmodels import metrics

Networks = Mapping[str, Set[int]]  # the tasks of each network


class Split(NamedTuple):
    """Indices of training rows and of test rows, ascending."""

    train: Indices
    test: Indices


def within_task(tasks: Groups, features: Matrix, *, share: float = 0.6) -> Split:
    """Split each task: train on its first `share` of rows, test on later, new candidates."""
    late = np.zeros(len(tasks), dtype=np.bool_)
    for lines in iterate_group_rows(tasks):
        late[lines[int(len(lines) * share) :]] = True
    train, test = np.flatnonzero(~late), np.flatnonzero(late)
    trained = set(_identities(tasks, features, train))
    is_new = [identity not in trained for identity in _identities(tasks, features, test)]
    return Split(train, test[np.array(is_new, dtype=np.bool_)])


def hold_out_newest(groups: Groups, limit: int, *, seed: int) -> Split:
    """Hold out each group's newest (last) fifth; sample at most `limit` rows per side."""
    late = np.zeros(len(groups), dtype=np.bool_)
    for lines in iterate_group_rows(groups):
        late[lines[len(lines) - len(lines) // 5 :]] = True
    rng = np.random.default_rng(seed)
    sides = [rng.permutation(np.flatnonzero(side))[:limit] for side in (~late, late)]
    return Split(np.sort(sides[0]), np.sort(sides[1]))


def by_task(tasks: Groups, *, seed: int, folds: int | None = None) -> Iterator[Split]:
    """Yield cross-validation splits by task; by default each fold is one task."""
    names = np.random.default_rng(seed).permutation(np.unique(tasks))
    for fold in np.array_split(names, min(folds or len(names), len(names))):
        held_out = np.isin(tasks, fold)
        yield Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))


def by_network(tasks: Groups, networks: Networks) -> Iterator[tuple[str, Split]]:
    """Yield each network's name, and a split that tests its tasks and trains on the rest."""
    for name, own in sorted(networks.items()):
        held_out = np.isin(tasks, sorted(own))
        yield name, Split(np.flatnonzero(~held_out), np.flatnonzero(held_out))


def by_host(hosts: Groups) -> Iterator[Split]:
    """Yield a split per host that tests its rows; rows without a host (-1) are left out."""
    for host in np.unique(hosts[hosts >= 0]):
        yield Split(np.flatnonzero((hosts >= 0) & (hosts != host)), np.flatnonzero(hosts == host))


def rebase_labels(labels: Vector, groups: Groups) -> Vector:
    """Return labels relative to each group's best here, so that no held-out row leaks in."""
    answer = labels.copy()
    has_time = is_time_label(labels)
    for lines in iterate_group_rows(groups):
        with_time = lines[has_time[lines]]
        if len(with_time):
            answer[with_time] = clip_time_labels(labels[with_time] - labels[with_time].max())
    return answer


def scramble_labels(labels: Vector, groups: Groups, *, seed: int) -> Vector:
    """Return labels shuffled within each group; a model of them must rank at chance level."""
    rng = np.random.default_rng(seed)
    answer = labels.copy()
    for lines in iterate_group_rows(groups):
        answer[lines] = rng.permutation(labels[lines])
    return answer


def _identities(tasks: Groups, features: Matrix, rows: Indices) -> Iterator[tuple[int, bytes]]:
    return ((int(tasks[row]), features[row].tobytes()) for row in rows)


TOP_K = 8
NORMAL_80 = 1.2816  # half width of the 80 % interval of a normal distribution, in deviations


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics of one split into training and test rows.

    `calibration` is the share of labels within two predicted standard deviations of the
    score, `interval_80` the share within the predicted 80 % interval. `pairwise` excludes
    pairs with equal labels, which `tied` counts. `pairwise` weights all pairs equally,
    `pairwise_task` all tasks. `top_pairwise` and `top_recall` cover a task's fastest tenth.
    """

    pairwise: float
    pairwise_task: float
    top_pairwise: float
    top_recall: float
    tied: int
    spearman: float
    recall: float
    peak_1: float
    peak_5: float
    rmse: float
    r2: float
    calibration: float
    interval_80: float
    rows: int


def fit_on_split(
    make_model: Callable[[], CostModel],
    features: Matrix,
    labels: Vector,
    groups: Groups,
    split: Split,
    *,
    seed: int,
) -> CostModel:
    """Fit a model on a split's training rows, with labels relative to the best of these.

    Raises InvalidRequest if either side is empty.
    """
    train, test = split
    if not len(train) or not len(test):
        raise InvalidRequest(
            f"there are {len(train)} training rows and {len(test)} test rows, too few for this split",
            hint="measure more, or split within tasks",
        )
    model = make_model()
    model.fit(features[train], rebase_labels(labels[train], groups[train]), groups[train], seed=seed)
    return model


def compute_metrics(mean: Vector, std: Vector, truth: Vector, groups: Groups) -> Evaluation:
    """Return the metrics of predictions against measured labels."""
    pairs = compare_pairs(mean, truth, groups)
    return Evaluation(
        pairwise=pairs.accuracy,
        pairwise_task=metrics.mean_of_tasks(pairwise_accuracy, mean, truth, groups),
        top_pairwise=metrics.mean_of_tasks(metrics.top_tenth_pairs, mean, truth, groups),
        top_recall=metrics.top_tenth_recall(mean, truth, groups),
        tied=pairs.tied,
        spearman=metrics.spearman(mean, truth, groups),
        recall=metrics.top_k_recall(mean, truth, groups, TOP_K),
        peak_1=metrics.peak_score(mean, truth, groups, 1),
        peak_5=metrics.peak_score(mean, truth, groups, 5),
        rmse=metrics.rmse(mean, truth),
        r2=metrics.r2(mean, truth),
        calibration=metrics.coverage(mean, std, truth, 2.0),
        interval_80=metrics.coverage(mean, std, truth, NORMAL_80),
        rows=len(truth),
    )
