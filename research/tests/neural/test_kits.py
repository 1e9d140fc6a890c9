"""The torch models keep the contract."""

from collections.abc import Callable

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import CostModel
from mallorn.costmodels.views import STATEMENTS
from mallorn_research.costmodels.metrics import coverage
from mallorn_research.costmodels.neural_networks import BUFFERS
from research.tests.fixtures.cost_models import ResearchModelTestCase, names_of_models


@pytest.mark.parametrize("name", names_of_models(torch=True))
class TestNetwork(ResearchModelTestCase):
    """What holds of them all beside the contract."""

    def test_rows_of_another_view_are_refused(
        self, make_model: Callable[[], CostModel], fitted: CostModel
    ) -> None:
        for use in (fitted.predict, lambda rows: self._fit(make_model(), (rows, *self.data(5, seed=0)[1:]))):
            with pytest.raises(InvalidRequest, match=f"do not fit the view {self.view}"):
                use(np.zeros((5, 7), dtype=np.float32))

    def test_lines_that_are_absent_change_nothing(self, fitted: CostModel) -> None:
        features, _, _ = self.data(20, seed=3)
        longest = np.vstack([features[:1], self.data(200, seed=4)[0]])
        assert fitted.predict(features[:1]).mean[0] == fitted.predict(longest).mean[0]

    def test_its_spread_covers_what_it_misses(self, fitted: CostModel) -> None:
        features, labels, _ = self.data(400, seed=9)
        assert 0.65 < coverage(*fitted.predict(features), labels, 1.2816) < 0.95


def test_pacm_sees_what_statements_read_and_write_and_nothing_else_of_them() -> None:
    """MetaSchedule numbers a statement's arithmetic and loops first, and its intensities last."""
    assert (BUFFERS.start, BUFFERS.stop) == (58, 148)
    assert STATEMENTS.shape[1] - BUFFERS.stop == 10 + 4 + 3
