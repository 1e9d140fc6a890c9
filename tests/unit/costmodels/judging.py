"""What the tests of models ask: how well a model would have done within the tasks it learned."""

from collections.abc import Callable

from mallorn.costmodels.base import CostModel
from mallorn.costmodels.evaluation import Evaluation, evaluate, within_task
from mallorn.costmodels.testing import Data


def within_tasks(make: Callable[[], CostModel], data: Data) -> Evaluation:
    """Fit on the first 60 % of each group's measurements, as a job would, and judge on the rest."""
    features, _, groups = data
    return evaluate(make, *data, within_task(groups, features), seed=0)
