"""The cost models keep their contract."""

from collections.abc import Callable

import numpy as np
import pytest

from costmodels.base import CostModel
from costmodels.evaluation import evaluate_across_tasks, evaluate_within_tasks
from costmodels.random import RandomModel
from costmodels.testing import CostModelTestCase, easy_data
from costmodels.xgb import XGBoost


class TestXGBoost(CostModelTestCase):
    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        return XGBoost

    def test_its_spread_covers_what_it_misses(self) -> None:
        features, labels, groups = easy_data(600, seed=0)
        noisy = labels + np.random.default_rng(0).normal(0, 0.3, size=600).astype(np.float32)
        result = evaluate_within_tasks(XGBoost, features, noisy, groups, seed=0)
        assert 0.85 < result.calibration < 0.995

    def test_it_is_less_sure_of_what_it_never_saw(self) -> None:
        features, labels, groups = easy_data(400, seed=0)
        model = XGBoost()
        model.fit(features, labels, groups, seed=0)
        assert model.predict(features).std.mean() < XGBoost().predict(features).std.mean()


class TestRandomModel(CostModelTestCase):
    learns = False

    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        return RandomModel

    def test_another_seed_scores_otherwise(self) -> None:
        data = easy_data(20, seed=0)
        one, other = RandomModel(), RandomModel()
        one.fit(*data, seed=1)
        other.fit(*data, seed=2)
        assert not np.array_equal(one.predict(data[0]).mean, other.predict(data[0]).mean)


def test_evaluation_tells_a_model_from_chance() -> None:
    features, labels, groups = easy_data(300, seed=0)
    learned = evaluate_within_tasks(XGBoost, features, labels, groups, seed=0)
    chance = evaluate_within_tasks(RandomModel, features, labels, groups, seed=0)
    assert learned.pairwise > 0.8 > 0.6 > chance.pairwise
    assert learned.recall > chance.recall
    assert learned.rmse < chance.rmse
    assert learned.rows == chance.rows == sum(len(g) - int(len(g) * 0.6) for g in split(groups))


def test_across_tasks_every_group_is_left_out_once() -> None:
    features, labels, groups = easy_data(300, seed=0)
    results = evaluate_across_tasks(XGBoost, features, labels, groups, seed=0)
    assert [result.rows for result in results] == [len(group) for group in split(groups)]
    assert all(result.pairwise > 0.8 for result in results)


def split(groups: np.ndarray) -> list[np.ndarray]:
    return [groups[groups == group] for group in np.unique(groups)]
