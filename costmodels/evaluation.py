"""Evaluate a cost model: fit it on one part of the measurements, and judge it on the other."""

from collections.abc import Callable
from dataclasses import dataclass

from costmodels import metrics
from costmodels.base import CostModel, Groups, Matrix, Vector
from costmodels.splits import Split, rebased
from mallorn.core.errors import InvalidRequest

TOP_K = 8
NORMAL_80 = 1.2816  # half width of the 80 % interval of a normal distribution, in deviations


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics of one split.

    `calibration` is the share of labels within two spreads of the score; `interval_80` is the
    share within the predicted 80 % interval. `pairwise` excludes pairs with equal labels;
    `tied` counts those. `pairwise` weights all pairs equally, `pairwise_task` all tasks.
    `top_pairwise` and `top_recall` only look at the fastest tenth of each task.
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


def evaluate(
    make: Callable[[], CostModel],
    features: Matrix,
    labels: Vector,
    groups: Groups,
    split: Split,
    *,
    seed: int,
) -> Evaluation:
    """Fit a model on the training rows of a split, and judge it on the test rows."""
    model = fitted(make, features, labels, groups, split, seed=seed)
    mean, std = model.predict(features[split.test])
    return judge(mean, std, labels[split.test], groups[split.test])


def fitted(
    make: Callable[[], CostModel],
    features: Matrix,
    labels: Vector,
    groups: Groups,
    split: Split,
    *,
    seed: int,
) -> CostModel:
    """Return a model fit on a split's training rows, with labels relative to their best.

    Raises InvalidRequest if either side is empty.
    """
    train, test = split
    if not len(train) or not len(test):
        raise InvalidRequest(
            f"there are {len(train)} rows to learn from and {len(test)} to judge: too few for this split",
            hint="measure more, or split within tasks",
        )
    model = make()
    model.fit(features[train], rebased(labels[train], groups[train]), groups[train], seed=seed)
    return model


def judge(mean: Vector, std: Vector, truth: Vector, groups: Groups) -> Evaluation:
    """Return the metrics of predictions against measured labels."""
    pairs = metrics.compare_pairs(mean, truth, groups)
    return Evaluation(
        pairwise=pairs.accuracy,
        pairwise_task=metrics.mean_of_tasks(metrics.pairwise_accuracy, mean, truth, groups),
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
