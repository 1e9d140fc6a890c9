"""The figures of each task alone, beside a case worked out by hand."""

import math

import pytest

from benchmarks.costmodels.task_figures import judge_tasks
from tests.unit.costmodels.test_evaluation import GROUPS, SCORES, TRUTH


def test_every_task_has_its_own_figures() -> None:
    found = judge_tasks(SCORES, TRUTH, GROUPS)
    assert list(found) == [7, 9]
    first, second = found[7], found[9]
    assert (first.pairwise, first.top_recall, first.peak_1, first.rows) == (1.0, 1.0, 1.0, 3)
    assert (second.pairwise, second.top_recall, second.rows) == (0.0, 0.0, 2)
    assert second.peak_1 == pytest.approx(0.25)
    assert second.peak_5 == pytest.approx((0.25 + 4 * 1) / 5)
    assert (first.spearman, second.spearman) == (pytest.approx(1.0), pytest.approx(-1.0))
    assert math.isnan(first.top_pairwise), "a tenth of three rows is one, which has no order"


def test_errors_are_told_in_log_units_and_as_shares_of_the_best_speed() -> None:
    first, second = judge_tasks(SCORES, TRUTH, GROUPS).values()
    assert first.rmse == pytest.approx(math.log(2) / math.sqrt(3), rel=1e-3)
    assert first.speed_rmse == pytest.approx(0.25 / math.sqrt(3), rel=1e-3)
    assert second.rmse == pytest.approx(math.sqrt((math.log(8) ** 2 + math.log(4) ** 2) / 2))
    assert second.speed_rmse == pytest.approx(math.sqrt((0.875**2 + 0.75**2) / 2))
