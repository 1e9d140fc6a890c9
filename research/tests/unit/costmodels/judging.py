"""What the tests of models ask: how well a model would have done within the tasks it learned."""

from collections.abc import Callable

from mallorn.costmodels.base import CostModel, Groups, Matrix, Vector
from mallorn.costmodels.testing import Data
from mallorn_research.costmodels.evaluation import (
    Evaluation,
    Split,
    compute_metrics,
    fit_on_split,
    within_task,
)


def evaluate(
    make_model: Callable[[], CostModel],
    features: Matrix,
    labels: Vector,
    groups: Groups,
    split: Split,
    *,
    seed: int,
) -> Evaluation:
    model = fit_on_split(make_model, features, labels, groups, split, seed=seed)
    mean, std = model.predict(features[split.test])
    return compute_metrics(mean, std, labels[split.test], groups[split.test])


def within_tasks(make: Callable[[], CostModel], data: Data) -> Evaluation:
    """Fit on the first 60 % of each group's measurements, as a job would, and judge on the rest."""
    features, _, groups = data
    return evaluate(make, *data, within_task(groups, features), seed=0)
