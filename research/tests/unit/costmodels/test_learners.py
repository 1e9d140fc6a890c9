"""What trees by LightGBM and scikit-learn learn, and how sure they are of it."""

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.tree import ExtraTreeRegressor

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import FAILED_LABEL, LATE_LABEL, CostModel
from mallorn.costmodels.lightgbm_models import LightGBM, LightGBMRank
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.forest import (
    LFBO,
    Forest,
    ForestPlusLFBO,
    as_trees,
    fast_row_targets_and_weights,
)
from mallorn_research.costmodels.mlp import MLP
from research.tests.unit.costmodels.judging import within_tasks
from tests.kits.learners import LearnerTestCase


@pytest.mark.parametrize("make", [LightGBMRank, MLP])
def test_scores_of_what_learns_ranks_mean_what_labels_mean(make: Callable[[], CostModel]) -> None:
    features, labels, groups = easy_data(600, seed=0)
    assert within_tasks(make, (features, labels, groups)).r2 > 0.4


def test_the_fastest_tenth_of_each_task_is_fast_by_how_much_it_gains() -> None:
    labels = np.log(np.linspace(0.1, 1.0, 21, dtype=np.float32))
    both = np.concatenate([labels, 2 * labels])
    targets, weights = fast_row_targets_and_weights(both, np.repeat([3, 9], 21))
    for fast in (targets[:21], targets[21:]):
        assert (fast[:19] == 0).all()
        assert 0 < fast[19] < 0.5 < fast[20] < 1
    np.testing.assert_allclose(weights, 1 / (1 - targets), rtol=1e-5)


def test_failures_are_never_fast() -> None:
    labels = np.array([FAILED_LABEL, 0.0, LATE_LABEL, -1.0], dtype=np.float32)
    targets, _ = fast_row_targets_and_weights(labels, np.zeros(4, dtype=np.int64))
    assert targets[[0, 2]].tolist() == [0.0, 0.0]
    assert targets[1] > 0


def test_the_head_is_ordered_better_than_by_a_model_that_slow_rows_teach_as_much() -> None:
    """A law that only the fastest rows follow, among many slow ones that follow another."""
    rng = np.random.default_rng(0)
    features = rng.random((4000, 136), dtype=np.float32)
    slow = np.where(features[:, 0] > 0.9, 0.0, 3 * features[:, 2])
    truth = -(slow + 0.15 * features[:, 1] + rng.normal(0, 0.2, 4000)).astype(np.float32)
    labels, groups = truth - truth.max(), np.zeros(4000, dtype=np.int64)
    head = np.flatnonzero(features[2000:, 0] > 0.9)
    law = -features[2000:][head, 1]

    def ordered(model: CostModel) -> float:
        model.fit(features[:2000], labels[:2000], groups[:2000], seed=0)
        return pairwise_accuracy(model.predict(features[2000:][head]).mean, law, groups[: len(head)])

    assert ordered(ForestPlusLFBO()) > ordered(XGBoost())


@pytest.mark.parametrize("make", [LightGBM, LightGBMRank, Forest, ForestPlusLFBO, LFBO])
def test_its_spread_covers_what_it_misses(make: Callable[[], CostModel]) -> None:
    features, labels, groups = easy_data(600, seed=0)
    noisy = np.minimum(0, labels + np.random.default_rng(0).normal(0, 0.3, size=600)).astype(np.float32)
    noisy[labels == FAILED_LABEL] = FAILED_LABEL
    assert 0.85 < within_tasks(make, (features, noisy, groups)).calibration <= 0.999


@pytest.mark.parametrize("make", [Forest, ForestPlusLFBO, LFBO])
class TestLearner(LearnerTestCase):
    """The same for the forests."""


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="it is a forest model"):
        LightGBM.load(Forest().save())


def test_trees_as_arrays_answer_as_the_library_does() -> None:
    features, labels, _ = easy_data(300, seed=0)
    noise = np.random.default_rng(0).normal(0, 1, features.shape).astype(np.float32)
    grown = [ExtraTreeRegressor(random_state=seed).fit(features + noise, labels) for seed in range(3)]
    rows = np.vstack([features + noise, features])
    expected = np.stack([tree.predict(rows) for tree in grown])
    np.testing.assert_allclose(as_trees(grown).predict_per_tree(rows), expected, rtol=1e-6)


def test_a_row_on_a_threshold_goes_the_way_it_goes_in_the_library() -> None:
    rows = np.array([[0.1], [0.2], [0.3]], dtype=np.float32)
    grown = ExtraTreeRegressor(random_state=0).fit(rows, np.array([1.0, 2.0, 3.0]))
    edges = np.array([[t] for t in grown.tree_.threshold if t > 0], dtype=np.float32)
    around = np.vstack([edges, np.nextafter(edges, np.float32(1)), np.nextafter(edges, np.float32(0))])
    np.testing.assert_allclose(as_trees([grown]).predict_per_tree(around)[0], grown.predict(around))
