"""What a model would have been worth: fit on one part of the measurements, judged on the other."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodels.base import CostModel, Matrix, Vector
from costmodels.metrics import members, pairwise_accuracy, rmse, top_k_recall

Groups = NDArray[np.int64]
Mask = NDArray[np.bool_]

TOP_K = 8


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures of one split. `calibration` is the share of labels within two spreads of the score."""

    pairwise: float
    recall: float
    rmse: float
    calibration: float
    rows: int


def evaluate_within_tasks(
    make: Callable[[], CostModel], features: Matrix, labels: Vector, groups: Groups, *, seed: int
) -> Evaluation:
    """Fit on the first 60 % of each group's measurements, as a job would, and judge on the rest."""
    test = np.zeros(len(labels), dtype=np.bool_)
    for lines in members(groups):
        test[lines[int(len(lines) * 0.6) :]] = True
    return _judge(make(), features, labels, groups, test, seed)


def evaluate_across_tasks(
    make: Callable[[], CostModel], features: Matrix, labels: Vector, groups: Groups, *, seed: int
) -> list[Evaluation]:
    """Leave one group out in turn: what the model knows of a task it never measured."""
    return [_judge(make(), features, labels, groups, groups == group, seed) for group in np.unique(groups)]


def _judge(
    model: CostModel, features: Matrix, labels: Vector, groups: Groups, test: Mask, seed: int
) -> Evaluation:
    model.fit(features[~test], labels[~test], groups[~test], seed=seed)
    mean, std = model.predict(features[test])
    truth, of = labels[test], groups[test]
    return Evaluation(
        pairwise=pairwise_accuracy(mean, truth, of),
        recall=top_k_recall(mean, truth, of, TOP_K),
        rmse=rmse(mean, truth),
        calibration=float(np.mean(np.abs(mean - truth) <= 2 * std)),
        rows=len(truth),
    )
