"""Metrics of how well scores predict labels; rows of different groups are never compared."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from mallorn.costmodels.base import Groups, Vector
from mallorn.costmodels.metrics import NAN, iterate_group_rows, pairwise_accuracy

Weights = dict[int, float]
Figure = Callable[[Vector, Vector, Groups], float]  # a metric of scores, labels and groups


def top_k_recall(scores: Vector, labels: Vector, groups: Groups, k: int) -> float:
    """Return the groups' mean share of the k fastest that the top k scores include."""
    recalls = []
    for lines in iterate_group_rows(groups):
        size = min(k, len(lines))
        fastest, top = _best(labels[lines], size), _best(scores[lines], size)
        recalls.append(len(np.intersect1d(fastest, top)) / size)
    return float(np.mean(recalls)) if recalls else NAN


def fastest_tenth(labels: Vector, groups: Groups) -> NDArray[np.int64]:
    """Return the rows of the fastest tenth (rounded up) of each group, in ascending order."""
    tenths = [lines[_best(labels[lines], _tenth(len(lines)))] for lines in iterate_group_rows(groups)]
    return np.sort(np.concatenate(tenths)) if tenths else np.empty(0, dtype=np.int64)


def top_tenth_pairs(scores: Vector, labels: Vector, groups: Groups) -> float:
    """Return the share of pairs ranked correctly within the fastest tenth of each group."""
    top = fastest_tenth(labels, groups)
    return pairwise_accuracy(scores[top], labels[top], groups[top])


def top_tenth_recall(scores: Vector, labels: Vector, groups: Groups) -> float:
    """Return how much of a group's fastest tenth its top-scored tenth has, on average."""

    def group_recall(scores: Vector, labels: Vector, groups: Groups) -> float:
        return top_k_recall(scores, labels, groups, _tenth(len(labels)))

    return mean_of_tasks(group_recall, scores, labels, groups)


def mean_of_tasks(metric: Figure, scores: Vector, labels: Vector, groups: Groups) -> float:
    """Return the unweighted mean of a metric over groups, without NaN values."""
    values = (metric(scores[lines], labels[lines], groups[lines]) for lines in iterate_group_rows(groups))
    defined = [value for value in values if value == value]
    return float(np.mean(defined)) if defined else NAN


def peak_score(scores: Vector, labels: Vector, groups: Groups, k: int) -> float:
    """Average best latency / best of the i highest scores over groups and i = 1..k."""
    peaks = []
    for lines in iterate_group_rows(groups):
        speed = np.exp(labels[lines].astype(np.float64))
        best_speed = np.maximum.accumulate(speed[_best(scores[lines], k)]) / speed.max()
        padding = 0, k - len(best_speed)
        peaks.append(float(np.mean(np.pad(best_speed, padding, mode="edge"))))
    return float(np.mean(peaks)) if peaks else NAN


def network_score(scores: Vector, latencies_us: Vector, groups: Groups, weights: Weights, k: int) -> float:
    """Return the least network time / its time with each task's fastest of the top k.

    Times are weighted by the task's number of calls. A failure counts as infinite latency,
    so a task whose top k all fail makes the result 0. Tasks that always fail are left out.
    """
    least_us, selected_us = 0.0, 0.0
    for lines in iterate_group_rows(groups):
        latency = latencies_us[lines].astype(np.float64)
        if np.isfinite(latency).any():
            weight = weights[int(groups[lines[0]])]
            least_us += weight * latency.min()
            selected_us += weight * latency[_best(scores[lines], k)].min()
    return float(least_us / selected_us) if selected_us else NAN


def spearman(scores: Vector, labels: Vector, groups: Groups) -> float:
    """Return the mean rank correlation over groups; groups with equal labels are skipped."""
    correlations = []
    for lines in iterate_group_rows(groups):
        left, right = rankdata(scores[lines]), rankdata(labels[lines])
        if np.ptp(right):
            correlations.append(float(np.corrcoef(left, right)[0, 1]) if np.ptp(left) else 0.0)
    return float(np.mean(correlations)) if correlations else NAN


def rmse(scores: Vector, labels: Vector) -> float:
    """Return the root mean squared error, in log units."""
    return float(np.sqrt(np.mean((scores.astype(np.float64) - labels) ** 2)))


def r2(scores: Vector, labels: Vector) -> float:
    """Return the share of the labels' variance that scores explain; NaN for equal labels."""
    truth = labels.astype(np.float64)
    variance = np.mean((truth - truth.mean()) ** 2)
    return float(1 - np.mean((scores - truth) ** 2) / variance) if variance else NAN


def coverage(mean: Vector, std: Vector, labels: Vector, deviations: float) -> float:
    """Return the share of labels within `deviations` * `std` of `mean`; NaN without rows."""
    return float(np.mean(np.abs(mean - labels) <= deviations * std)) if len(labels) else NAN


def _best(values: Vector, k: int) -> NDArray[np.intp]:
    return np.argsort(-values, kind="stable")[:k]


def _tenth(rows: int) -> int:
    return -(-rows // 10)
