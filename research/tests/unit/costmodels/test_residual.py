"""A model on a base answers as its base, until local rows say what the base misses."""

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.analytic_models import Draft
from mallorn.costmodels.base import CostModel, Matrix, Prediction, Vector
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.testing import assert_same, easy_data
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.adapted_networks import MTLTLP, MoA
from mallorn_research.costmodels.neural_networks import TLP
from mallorn_research.costmodels.residual import TRUSTED_ROWS, Residual, fit_trust_factor
from mallorn_research.costmodels.statement_boosters import Statements
from mallorn_research.costmodels.transfer_model_base import name_of


@pytest.fixture(scope="module")
def base() -> XGBoost:
    model = XGBoost()
    model.fit(*easy_data(500, seed=0), seed=0)
    return model


def accuracy(model: CostModel) -> float:
    features, labels, groups = easy_data(300, seed=7)
    return pairwise_accuracy(model.predict(features).mean, labels, groups)


def test_before_any_local_row_the_base_answers(base: XGBoost) -> None:
    features, labels, groups = easy_data(40, seed=1)
    model = Residual.from_base(base)
    assert_same(model.predict(features), base.predict(features))
    model.fit(features[:0], labels[:0], groups[:0], seed=0)
    assert_same(Residual.load(model.save()).predict(features), base.predict(features))


def test_a_few_local_rows_on_a_base_order_better_than_they_do_alone(base: XGBoost) -> None:
    local = easy_data(30, seed=2)
    alone, based = XGBoost(), Residual.from_base(base)
    alone.fit(*local, seed=0)
    based.fit(*local, seed=0)
    assert accuracy(based) > accuracy(alone) + 0.05


def test_what_the_base_always_misses_is_mended(base: XGBoost) -> None:
    features, labels, groups = easy_data(300, seed=3)
    other = np.where(features[:, 11] > 3, np.maximum(labels - 1, -4), labels).astype(np.float32)
    model = Residual.from_base(base)
    model.fit(features[:200], other[:200], groups[:200], seed=0)
    before = np.abs(base.predict(features[200:]).mean - other[200:]).mean()
    assert np.abs(model.predict(features[200:]).mean - other[200:]).mean() < 0.7 * before


def test_the_base_stays_as_it_was_and_is_carried_along(base: XGBoost) -> None:
    untouched, model = base.save(), Residual.from_base(base)
    model.fit(*easy_data(50, seed=4), seed=0)
    assert base.save() == untouched
    assert Residual.load(model.save()).base.save() == untouched


def test_it_reads_what_its_base_reads() -> None:
    model = Residual.from_base(Statements())
    assert (model.view, Residual.view) == ("statements", "decisions")
    model.fit(*easy_data(60, 0, "statements"), seed=0)
    again = Residual.load(model.save())
    assert again.view == "statements"
    rows = easy_data(20, 1, "statements")[0]
    assert_same(again.predict(rows), model.predict(rows))


def test_trust_is_the_slope_drawn_to_one_by_as_many_rows_as_speak_for_the_base() -> None:
    guess = np.array([0, -1, -2, -3] * 4, dtype=np.float32)
    equal = np.ones(16)
    assert TRUSTED_ROWS == 16
    assert fit_trust_factor(guess, 3 * guess, equal) == pytest.approx(2.0)
    assert fit_trust_factor(guess, -5 * guess, equal) == 0.0
    assert fit_trust_factor(np.zeros(16, dtype=np.float32), guess, equal) == 1.0


def test_any_model_can_be_the_base_of_residuals_and_networks_that_of_momentum() -> None:
    assert [Residual.can_extend(kind) for kind in (XGBoost, TLP, Residual, MoA)] == [True, True, False, False]
    assert [MoA.can_extend(kind) for kind in (XGBoost, TLP, MTLTLP, MoA)] == [False, True, True, False]


class Unregistered(Draft):
    """Nobody could load it again."""

    def predict(self, features: Matrix) -> Prediction:
        nothing: Vector = np.zeros(len(features), dtype=np.float32)
        return Prediction(nothing, nothing + 1)


def test_a_base_that_nobody_could_load_is_refused_with_the_names_of_those_that_can() -> None:
    assert name_of(Residual.from_base(Statements())) == "residual"
    with pytest.raises(InvalidRequest, match="Unregistered is not a registered cost model") as raised:
        Residual.from_base(Unregistered()).save()
    assert "xgboost" in raised.value.hint
