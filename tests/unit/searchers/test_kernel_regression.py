"""The model of a history alone keeps the contract of models."""

from collections.abc import Callable

import numpy as np
import pytest

from mallorn.costmodels.base import CostModel
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.testing import CostModelTestCase, easy_data
from mallorn.searchers.learning.exploring_learner import KernelRegression


class TestKernelRegression(CostModelTestCase):
    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        return KernelRegression

    def test_it_orders_what_it_has_not_seen(self, make_model: Callable[[], CostModel]) -> None:
        """Less well than trees where most columns mean nothing: to a kernel all count alike."""
        features, labels, groups = easy_data(300, seed=7)
        model = self._fit(make_model(), easy_data(600, seed=0))
        assert pairwise_accuracy(model.predict(features).mean, labels, groups) > 0.7


def test_it_is_sure_of_what_it_knows_and_unsure_far_away() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    model = KernelRegression()
    model.fit(rows, -np.abs(rows[:, 0]), np.zeros(60, dtype=np.int64), seed=0)
    assert model.predict(rows).std.max() < 1e-3
    assert model.predict(rows + 50).std.min() > 0.3


def test_rows_that_are_all_alike_are_no_obstacle() -> None:
    model = KernelRegression()
    rows = np.ones((4, 3), dtype=np.float32)
    model.fit(rows, np.array([0, -1, -1, -2], dtype=np.float32), np.zeros(4, dtype=np.int64), seed=0)
    assert model.predict(rows).mean == pytest.approx(-1.0)
