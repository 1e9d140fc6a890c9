"""The figures of a model on each task alone."""

from dataclasses import dataclass

import numpy as np

from mallorn.costmodels.base import Groups, Vector
from mallorn.costmodels.metrics import iterate_group_rows, pairwise_accuracy
from mallorn_research.costmodels import metrics


@dataclass(frozen=True, slots=True)
class TaskFigures:
    """Figures of one task. `speed_rmse` is the error of best time / time, which is at most 1."""

    pairwise: float
    top_pairwise: float
    top_recall: float
    spearman: float
    peak_1: float
    peak_5: float
    rmse: float
    speed_rmse: float
    rows: int


def judge_tasks(scores: Vector, truth: Vector, groups: Groups) -> dict[int, TaskFigures]:
    """The figures of each task, by group; NaN where one is undefined."""
    return {
        int(groups[lines[0]]): _judge_task(scores[lines], truth[lines], groups[lines])
        for lines in iterate_group_rows(groups)
    }


def _judge_task(scores: Vector, truth: Vector, groups: Groups) -> TaskFigures:
    return TaskFigures(
        pairwise=pairwise_accuracy(scores, truth, groups),
        top_pairwise=metrics.top_tenth_pairs(scores, truth, groups),
        top_recall=metrics.top_tenth_recall(scores, truth, groups),
        spearman=metrics.spearman(scores, truth, groups),
        peak_1=metrics.peak_score(scores, truth, groups, 1),
        peak_5=metrics.peak_score(scores, truth, groups, 5),
        rmse=metrics.rmse(scores, truth),
        speed_rmse=metrics.rmse(np.exp(scores), np.exp(truth)),
        rows=len(truth),
    )
