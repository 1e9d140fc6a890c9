"""Labels and the bounded sample."""

import math

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.core.outcomes import Outcome
from mallorn.costmodels.base import FAILED_LABEL, LATE_LABEL
from mallorn.costmodels.labels import bounded_sample, clip_time_labels, is_informative, is_time_label, labels
from tests.unit.costmodels.synthetic import ids, vector

OK, BAD = Outcome.OK, Outcome.RUN_ERROR


def test_labels_compare_with_the_best_of_the_group() -> None:
    made = labels([10.0, 20.0, 5.0, None], ids(9, 9, 2, 2), [OK, OK, OK, BAD])
    assert made.tolist() == pytest.approx([0.0, -math.log(2), 0.0, FAILED_LABEL])
    assert made.dtype == np.float32


def test_the_slowest_time_is_one_and_lies_above_a_failure() -> None:
    made = labels([1.0, 1e6, None], ids(1, 1, 1), [OK, OK, BAD])
    assert made.tolist() == pytest.approx([0.0, FAILED_LABEL, FAILED_LABEL])
    assert is_time_label(made).tolist() == [True, True, False]


def test_a_time_that_is_as_slow_as_one_that_was_cut_off_is_a_time_all_the_same() -> None:
    made = clip_time_labels(np.array([LATE_LABEL, -1.0]))
    assert made.tolist() == pytest.approx([LATE_LABEL, -1.0])
    assert is_time_label(made).all()


def test_a_run_that_was_cut_off_was_late_and_a_build_that_was_failed() -> None:
    made = labels([10.0, None, None], ids(1, 1, 1), [OK, Outcome.RUN_TIMEOUT, Outcome.BUILD_TIMEOUT])
    assert made.tolist() == [0.0, LATE_LABEL, FAILED_LABEL]


def test_runs_that_were_all_cut_off_are_late_and_none_of_them_is_the_best() -> None:
    assert labels([None, None], ids(1, 1), [Outcome.RUN_TIMEOUT] * 2).tolist() == [LATE_LABEL] * 2


def test_only_what_ended_was_timed() -> None:
    assert is_time_label(vector(0, -1, LATE_LABEL, FAILED_LABEL)).tolist() == [True, True, False, False]


def test_the_time_of_a_wrong_result_counts_for_nothing() -> None:
    made = labels([1.0, 10.0], ids(1, 1), [Outcome.WRONG_RESULT, OK])
    assert made.tolist() == [FAILED_LABEL, 0.0]


def test_a_group_of_failures_and_no_rows_at_all_have_labels_too() -> None:
    assert labels([None, 3.0], ids(1, 2), [BAD, OK]).tolist() == [FAILED_LABEL, 0.0]
    assert labels([], ids(), []).shape == (0,)


@pytest.mark.parametrize("wrong", [0.0, -3.0, math.inf, math.nan])
def test_a_time_that_is_none_is_refused_and_that_of_a_failure_ignored(wrong: float) -> None:
    with pytest.raises(InvalidRequest, match=f"1 of 2 times are not positive: the first is {wrong:g} us"):
        labels([10.0, wrong], ids(1, 1), [OK, OK])
    assert labels([10.0, wrong], ids(1, 1), [OK, BAD]).tolist() == [0.0, FAILED_LABEL]


def test_what_the_worker_did_is_no_lesson_about_the_candidate() -> None:
    assert is_informative([OK, Outcome.WORKER_LOST, BAD, Outcome.CANCELLED]).tolist() == [
        True,
        False,
        True,
        False,
    ]


def test_a_small_dataset_is_taken_whole() -> None:
    assert bounded_sample(vector(-1, -2, 0), 3, seed=0).tolist() == [0, 1, 2]


def test_a_large_dataset_gives_its_newest_its_best_and_some_of_the_rest() -> None:
    label = -np.arange(1000, dtype=np.float32)  # the oldest are the best
    rows = bounded_sample(label, 90, seed=0)
    assert len(rows) == len(set(rows.tolist())) == 90
    assert rows.tolist() == sorted(rows.tolist())
    assert set(range(970, 1000)) | set(range(30)) <= set(rows.tolist())
    assert rows.tolist() == bounded_sample(label, 90, seed=0).tolist()
    assert rows.tolist() != bounded_sample(label, 90, seed=1).tolist()
