"""The torch models keep the contract."""

from collections.abc import Callable

import numpy as np
import pytest

from costmodels.base import CostModel
from costmodels.gnn import GNN
from costmodels.metrics import coverage
from costmodels.moa_momentum import MoA
from costmodels.mtl_tlp import MTLTLP
from costmodels.pacm import BUFFERS, PaCM
from costmodels.tcl_distillation import TCL
from costmodels.testing import StoredModelTestCase
from costmodels.tlp import TLP
from costmodels.tree_lstm import TreeLSTM
from costmodels.views import STATEMENTS
from mallorn.core.errors import InvalidRequest


class NeuralTestCase(StoredModelTestCase):
    """What holds of them all beside the contract."""

    @staticmethod
    def kind() -> CostModel:
        raise NotImplementedError

    @pytest.fixture
    def make_model(self) -> Callable[[], CostModel]:
        return self.kind

    def test_rows_of_another_view_are_refused(self, fitted: CostModel) -> None:
        for use in (fitted.predict, lambda rows: self._fit(self.kind(), (rows, *self.data(5, seed=0)[1:]))):
            with pytest.raises(InvalidRequest, match=f"are no {self.view}"):
                use(np.zeros((5, 7), dtype=np.float32))

    def test_lines_that_are_absent_change_nothing(self, fitted: CostModel) -> None:
        features, _, _ = self.data(20, seed=3)
        longest = np.vstack([features[:1], self.data(200, seed=4)[0]])
        assert fitted.predict(features[:1]).mean[0] == fitted.predict(longest).mean[0]

    def test_its_spread_covers_what_it_misses(self, fitted: CostModel) -> None:
        features, labels, _ = self.data(400, seed=9)
        assert 0.65 < coverage(*fitted.predict(features), labels, 1.2816) < 0.95


class TestTLP(NeuralTestCase):
    view = "primitives"
    kind = TLP


class TestPaCM(NeuralTestCase):
    view = "statements"
    kind = PaCM

    def test_it_sees_what_statements_read_and_write_and_nothing_else_of_them(self) -> None:
        """MetaSchedule numbers a statement's arithmetic and loops first, and its intensities last."""
        assert (BUFFERS.start, BUFFERS.stop) == (58, 148)
        assert STATEMENTS.shape[1] - BUFFERS.stop == 10 + 4 + 3


class TestGNN(NeuralTestCase):
    view = "loops"
    accuracy = 0.75  # which line of the tree a value stands in is what it learns last
    kind = GNN


class TestTreeLSTM(NeuralTestCase):
    view = "loops"
    accuracy = 0.8
    kind = TreeLSTM


class TestMTLTLP(NeuralTestCase):
    view = "primitives"
    kind = MTLTLP


class TestTCL(NeuralTestCase):
    view = "primitives"
    kind = TCL


class TestMoA(NeuralTestCase):
    view = "primitives"
    kind = MoA
