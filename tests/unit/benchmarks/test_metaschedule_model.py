"""The bar is TVM's own model: it answers what TVM's code answers, and only the scale is ours."""

import numpy as np
import pytest
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig, XGBModel

from benchmarks.costmodels.metaschedule import SLOWEST, MetaSchedule, as_labels
from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.base import FAILED_LABEL
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.views import STATEMENTS

ROWS = 200


def test_it_orders_what_it_has_not_seen() -> None:
    model = MetaSchedule()
    model.fit(*easy_data(5 * ROWS, 0, STATEMENTS.name), seed=0)
    features, labels, groups = easy_data(ROWS, 1, STATEMENTS.name)
    scores, spread = model.predict(features)
    assert pairwise_accuracy(scores, labels, groups) > 0.7
    assert scores.dtype == np.float32
    assert not spread.any()


def test_it_answers_as_tvm_does_when_it_is_trained_on_shares_of_the_best_speed() -> None:
    features, labels, groups = easy_data(ROWS, 0, STATEMENTS.name)
    model = MetaSchedule()
    model.fit(features, labels, groups, seed=0)
    in_groups = np.argsort(groups, kind="stable")
    tables = STATEMENTS.tables(features)[in_groups]
    statements = [table[table[:, 0] > 0, 1:] for table in tables]
    sec = np.where(labels > FAILED_LABEL, np.exp(-labels.astype(np.float64)), 1e10).astype(np.float32)
    shares = np.concatenate([sec[groups == each].min() / sec[groups == each] for each in np.unique(groups)])
    stock = XGBModel._cls(config=XGBConfig(nthread=1))
    stock._train(statements, shares)
    expected = as_labels(stock._predict(statements))
    np.testing.assert_allclose(model.predict(features[in_groups]).mean, expected, rtol=1e-3, atol=1e-3)


def test_a_share_of_the_best_speed_becomes_a_label_and_nothing_changes_places() -> None:
    shares = np.array([1.2, 1.0, 0.5, SLOWEST, 0.01, 0.0, -0.3])
    found = as_labels(shares)
    assert found[1:3].tolist() == pytest.approx([0.0, np.log(0.5)])
    assert found[3] == pytest.approx(FAILED_LABEL)
    assert (np.diff(found) < 0).all()


def test_below_a_hundred_rows_it_guesses_as_tvm_does() -> None:
    features, labels, groups = easy_data(90, 0, STATEMENTS.name)
    model = MetaSchedule()
    model.fit(features, labels, groups, seed=0)
    assert (model.predict(features).mean != model.predict(features).mean).any()


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows_and_programs_of_no_statement_are_no_errors(rows: int) -> None:
    features, labels, groups = easy_data(10, 0, STATEMENTS.name)
    model = MetaSchedule()
    model.fit(features[:rows], labels[:rows], groups[:rows], seed=0)
    assert len(model.predict(np.zeros_like(features)).mean) == 10
    assert len(model.predict(features[:0]).mean) == 0


def test_rows_of_another_view_and_labels_that_are_none_are_refused() -> None:
    features, labels, groups = easy_data(10, 0)
    with pytest.raises(InvalidRequest, match="do not fit the view statements"):
        MetaSchedule().fit(features, labels, groups, seed=0)
    features, _, _ = easy_data(10, 0, STATEMENTS.name)
    for wrong in (0.5, np.inf, np.nan):
        with pytest.raises(InvalidRequest, match="labels are not"):
            MetaSchedule().fit(features, np.full_like(labels, wrong), groups, seed=0)


def test_it_is_not_stored() -> None:
    with pytest.raises(InvalidRequest, match="not stored") as caught:
        MetaSchedule().save()
    assert caught.value.hint
    with pytest.raises(InvalidRequest, match="not stored"):
        MetaSchedule.load(b"")
