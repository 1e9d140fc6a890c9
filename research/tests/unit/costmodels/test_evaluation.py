"""What a model was worth on a split, beside a case worked out by hand."""

import math

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.evaluation import Split, compute_metrics
from research.tests.unit.costmodels.judging import evaluate, within_tasks

# Two tasks: times 1, 2, 4 and times 1, 4. The first is scored in order, the second upside down.
TRUTH = np.log(np.array([1, 1 / 2, 1 / 4, 1, 1 / 4], dtype=np.float32))
SCORES = np.log(np.array([1, 1 / 2, 1 / 2.0001, 1 / 8, 1], dtype=np.float32))
GROUPS = np.array([7, 7, 7, 9, 9], dtype=np.int64)


def test_a_split_is_judged_by_pairs_and_by_tasks() -> None:
    found = compute_metrics(SCORES, np.ones_like(SCORES), TRUTH, GROUPS)
    assert found.pairwise == pytest.approx(3 / 4)
    assert found.pairwise_task == pytest.approx(1 / 2)
    assert found.top_recall == pytest.approx(1 / 2)
    assert math.isnan(found.top_pairwise)


def test_the_spread_of_boosters_covers_what_they_miss() -> None:
    features, labels, groups = easy_data(600, seed=0)
    noise = np.random.default_rng(0).normal(0, 0.3, size=600).astype(np.float32)
    noisy = np.minimum(0, labels + noise)
    result = within_tasks(XGBoost, (features, noisy, groups))
    assert 0.85 < result.calibration < 0.995


def test_evaluation_tells_a_model_from_chance() -> None:
    features, labels, groups = easy_data(300, seed=0)
    learned = within_tasks(XGBoost, (features, labels, groups))
    chance = within_tasks(RandomModel, (features, labels, groups))
    assert learned.pairwise > 0.8 > 0.6 > chance.pairwise
    assert learned.recall > chance.recall
    assert learned.rmse < chance.rmse
    assert learned.rows == chance.rows == sum(len(g) - int(len(g) * 0.6) for g in split(groups))


def test_a_split_that_leaves_nothing_to_learn_or_to_judge_is_refused() -> None:
    data = easy_data(10, seed=0)
    everything, nothing = np.arange(10), np.arange(0)
    for train, test in ((everything, nothing), (nothing, everything)):
        with pytest.raises(InvalidRequest, match="too few for this split"):
            evaluate(RandomModel, *data, Split(train, test), seed=0)


def split(groups: np.ndarray) -> list[np.ndarray]:
    return [groups[groups == group] for group in np.unique(groups)]
