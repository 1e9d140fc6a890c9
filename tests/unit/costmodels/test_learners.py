"""Trees by LightGBM and scikit-learn keep the contract."""

from collections.abc import Callable

import numpy as np
import pytest
from sklearn.tree import ExtraTreeRegressor

from costmodels.base import FAILED_LABEL, CostModel
from costmodels.forest import Forest
from costmodels.lgbm import LightGBM, LightGBMRank
from costmodels.testing import StoredModelTestCase, easy_data
from costmodels.trees import as_trees
from mallorn.core.errors import InvalidRequest
from tests.unit.costmodels.judging import within_tasks


class TestLightGBM(StoredModelTestCase):
    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        return LightGBM


class TestLightGBMRank(StoredModelTestCase):
    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        return LightGBMRank

    def test_scores_mean_what_labels_mean(self) -> None:
        features, labels, groups = easy_data(600, seed=0)
        assert within_tasks(LightGBMRank, (features, labels, groups)).r2 > 0.4


class TestForest(StoredModelTestCase):
    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        return Forest


@pytest.mark.parametrize("make", [LightGBM, LightGBMRank, Forest])
class TestEveryLearner:
    def test_its_spread_covers_what_it_misses(self, make: Callable[[], CostModel]) -> None:
        features, labels, groups = easy_data(600, seed=0)
        noisy = np.minimum(0, labels + np.random.default_rng(0).normal(0, 0.3, size=600)).astype(np.float32)
        noisy[labels == FAILED_LABEL] = FAILED_LABEL
        assert 0.85 < within_tasks(make, (features, noisy, groups)).calibration <= 0.999

    def test_one_group_of_labels_all_alike_is_scored_alike(self, make: Callable[[], CostModel]) -> None:
        features, labels, groups = easy_data(50, seed=0)
        model = make()
        model.fit(features, np.full_like(labels, -1.5), np.zeros_like(groups), seed=0)
        np.testing.assert_allclose(model.predict(features).mean, -1.5, atol=0.05)

    def test_another_seed_is_another_model(self, make: Callable[[], CostModel]) -> None:
        data = easy_data(200, seed=0)
        one, other = make(), make()
        one.fit(*data, seed=1)
        other.fit(*data, seed=2)
        assert not np.array_equal(one.predict(data[0]).mean, other.predict(data[0]).mean)


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="it is a forest model"):
        LightGBM.load(Forest().save())


def test_trees_as_arrays_answer_as_the_library_does() -> None:
    features, labels, _ = easy_data(300, seed=0)
    noise = np.random.default_rng(0).normal(0, 1, features.shape).astype(np.float32)
    grown = [ExtraTreeRegressor(random_state=seed).fit(features + noise, labels) for seed in range(3)]
    rows = np.vstack([features + noise, features])
    expected = np.stack([tree.predict(rows) for tree in grown])
    np.testing.assert_allclose(as_trees(grown).opinions(rows), expected, rtol=1e-6)


def test_a_row_on_a_threshold_goes_the_way_it_goes_in_the_library() -> None:
    rows = np.array([[0.1], [0.2], [0.3]], dtype=np.float32)
    grown = ExtraTreeRegressor(random_state=0).fit(rows, np.array([1.0, 2.0, 3.0]))
    edges = np.array([[t] for t in grown.tree_.threshold if t > 0], dtype=np.float32)
    around = np.vstack([edges, np.nextafter(edges, np.float32(1)), np.nextafter(edges, np.float32(0))])
    np.testing.assert_allclose(as_trees([grown]).opinions(around)[0], grown.predict(around))
