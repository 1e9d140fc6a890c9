"""Every metric beside a case worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn_research.costmodels.metrics import (
    coverage,
    fastest_tenth,
    mean_of_tasks,
    network_score,
    peak_score,
    r2,
    rmse,
    spearman,
    top_k_recall,
    top_tenth_pairs,
    top_tenth_recall,
)
from tests.unit.costmodels.synthetic import ids, vector

ONE_GROUP = ids(1, 1, 1, 1)
HALVES = vector(0, math.log(0.5), math.log(0.25), math.log(0.2))  # latencies 1, 2, 4, 5


def test_top_k_recall_is_the_share_of_the_fastest_that_were_found() -> None:
    truth = vector(0, -1, -2, -3)
    assert top_k_recall(vector(4, 3, 2, 1), truth, ONE_GROUP, 2) == 1.0
    assert top_k_recall(vector(4, 1, 2, 3), truth, ONE_GROUP, 2) == 0.5
    assert top_k_recall(vector(1, 2, 3, 4), truth, ids(1, 1, 2, 2), 9) == 1.0


def test_the_fastest_tenth_of_each_group_is_rounded_up() -> None:
    labels = np.concatenate([-np.arange(12), -np.arange(3)]).astype(np.float32)[::-1].copy()
    groups = np.repeat(np.array([1, 2]), [3, 12]).astype(np.int64)
    assert fastest_tenth(labels, groups).tolist() == [2, 13, 14], "one of three rows, two of twelve"
    assert fastest_tenth(labels[:0], groups[:0]).tolist() == []


def test_pairs_of_the_fastest_tenth_are_compared_with_each_other_only() -> None:
    labels = -np.arange(30, dtype=np.float32)  # the fastest three come first
    groups = np.ones(30, dtype=np.int64)
    scores = labels.copy()
    scores[:3] = vector(-1, -2, 0)  # of three pairs one is right; the other 27 rows are in order
    assert top_tenth_pairs(scores, labels, groups) == pytest.approx(1 / 3)
    assert pairwise_accuracy(scores, labels, groups) == pytest.approx((435 - 2) / 435)
    assert math.isnan(top_tenth_pairs(scores[:10], labels[:10], groups[:10])), "one row has no order"


def test_top_tenth_recall_is_of_the_tenth_of_each_group() -> None:
    labels = np.concatenate([-np.arange(20), -np.arange(10)]).astype(np.float32)
    groups = np.repeat(np.array([1, 2]), [20, 10]).astype(np.int64)
    scores = labels.copy()
    scores[1], scores[7] = -19.5, 1.0  # of the two fastest of the first group one is found
    assert top_tenth_recall(scores, labels, groups) == pytest.approx((0.5 + 1.0) / 2)
    assert math.isnan(top_tenth_recall(labels[:0], labels[:0], groups[:0]))


def test_a_figure_per_task_counts_every_task_alike_and_leaves_out_what_cannot_be_told() -> None:
    truth, groups = vector(0, -1, -2, 0, -1, 0), ids(1, 1, 1, 2, 2, 3)
    scores = vector(3, 2, 1, 1, 2, 9)
    assert mean_of_tasks(pairwise_accuracy, scores, truth, groups) == 0.5
    assert pairwise_accuracy(scores, truth, groups) == 0.75, "three pairs of the first count thrice"
    assert math.isnan(mean_of_tasks(pairwise_accuracy, vector(1), vector(0), ids(1)))


def test_peak_score_is_the_mean_over_the_best_scored_so_far() -> None:
    scores = vector(1, 3, 2, 4)  # tries latencies 5, 2, 4, 1 against a best of 1
    assert peak_score(scores, HALVES, ONE_GROUP, 1) == pytest.approx(1 / 5)
    assert peak_score(scores, HALVES, ONE_GROUP, 2) == pytest.approx((1 / 5 + 1 / 2) / 2)
    assert peak_score(scores, HALVES, ONE_GROUP, 4) == pytest.approx((1 / 5 + 1 / 2 + 1 / 2 + 1) / 4)


def test_peak_score_of_a_group_smaller_than_k_stays_at_its_best() -> None:
    scores, truth = vector(1, 2), vector(0, math.log(0.5))
    assert peak_score(scores, truth, ids(1, 1), 5) == pytest.approx((0.5 + 1 + 1 + 1 + 1) / 5)


def test_peak_score_is_the_mean_over_groups() -> None:
    truth = vector(0, math.log(0.5), 0, math.log(0.25))
    assert peak_score(vector(1, 2, 1, 2), truth, ids(1, 1, 2, 2), 1) == pytest.approx((0.5 + 0.25) / 2)


def test_network_score_weighs_tasks_by_their_calls_and_their_time() -> None:
    latencies, groups = vector(10, 20, 1, 3), ids(1, 1, 2, 2)
    scores = vector(1, 2, 1, 2)  # the slower of each task first
    weights = {1: 2.0, 2: 5.0}
    assert network_score(scores, latencies, groups, weights, 1) == pytest.approx((20 + 5) / (40 + 15))
    assert network_score(scores, latencies, groups, weights, 2) == 1.0


def test_network_score_of_choices_that_all_fail_is_nothing() -> None:
    failed = vector(math.inf, 1, math.inf, math.inf)
    groups, weights = ids(1, 1, 2, 2), {1: 1.0, 2: 1.0}
    assert network_score(vector(2, 1, 2, 1), failed, groups, weights, 1) == 0.0
    assert network_score(vector(1, 2, 2, 1), failed, groups, weights, 1) == 1.0
    assert math.isnan(network_score(vector(1), vector(math.inf), ids(1), {1: 1.0}, 1))


def test_spearman_correlates_ranks_and_ties_share_theirs() -> None:
    truth = vector(1, 2, 3, 4)
    assert spearman(vector(1, 10, 100, 1000), truth, ONE_GROUP) == pytest.approx(1.0)
    assert spearman(vector(4, 3, 2, 1), truth, ONE_GROUP) == pytest.approx(-1.0)
    assert spearman(vector(1, 3, 2, 4), truth, ONE_GROUP) == pytest.approx(1 - 6 * 2 / (4 * 15))
    tied = vector(1, 1, 2, 2)  # ranks 1.5, 1.5, 3.5, 3.5
    assert spearman(tied, truth, ONE_GROUP) == pytest.approx(2 / math.sqrt(5))


def test_spearman_skips_groups_without_an_order_and_scores_that_say_nothing_correlate_with_nothing() -> None:
    assert spearman(vector(1, 2, 5, 6), vector(1, 2, 3, 3), ids(1, 1, 2, 2)) == pytest.approx(1.0)
    assert spearman(vector(7, 7), vector(1, 2), ids(1, 1)) == 0.0
    assert math.isnan(spearman(vector(7), vector(1), ids(1)))


def test_rmse_is_in_log_units() -> None:
    assert rmse(vector(0, -2), vector(0, 0)) == pytest.approx(math.sqrt(2))


def test_r2_is_one_minus_the_unexplained_share() -> None:
    truth = vector(-1, 0, 1)
    assert r2(truth, truth) == 1.0
    assert r2(vector(0, 0, 0), truth) == pytest.approx(0.0)
    assert r2(vector(1, 0, -1), truth) == pytest.approx(-3.0)
    assert math.isnan(r2(vector(1, 2), vector(0, 0)))


def test_coverage_counts_labels_within_so_many_spreads() -> None:
    mean, std, truth = vector(0, 0, 0, 0), vector(1, 1, 1, 1), vector(0, 1, -1.5, 3)
    assert coverage(mean, std, truth, 1.0) == 0.5
    assert coverage(mean, std, truth, 2.0) == 0.75
    assert math.isnan(coverage(mean[:0], std[:0], truth[:0], 1.0))


@settings(deadline=None)
@given(st.lists(st.integers(-50, 0), min_size=2, max_size=20), st.integers(0, 2**32 - 1))
def test_metrics_of_order_ask_only_for_the_order_and_never_across_groups(
    values: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    truth = np.array(values, dtype=np.float32) / 10
    scores, groups = rng.permutation(len(truth)).astype(np.float32), rng.integers(0, 3, len(truth))
    moved = 3 * scores + 100 * groups.astype(np.float32)
    for metric in (pairwise_accuracy, spearman):
        before, after = metric(scores, truth, groups), metric(moved.astype(np.float32), truth, groups)
        assert before == pytest.approx(after, nan_ok=True)
    for k in (1, 5):
        assert top_k_recall(scores, truth, groups, k) == top_k_recall(moved, truth, groups, k)
        assert 0 < peak_score(scores, truth, groups, k) == peak_score(moved, truth, groups, k) <= 1
