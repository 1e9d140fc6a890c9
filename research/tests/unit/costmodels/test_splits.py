"""Nothing leaks from the rows that are judged to those that are learned from."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from mallorn.costmodels.base import FAILED_LABEL, LATE_LABEL, CostModel
from mallorn.costmodels.labels import is_time_label
from mallorn.costmodels.lightgbm_models import LightGBM, LightGBMRank
from mallorn.costmodels.random import RandomModel
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.evaluation import (
    Split,
    by_host,
    by_network,
    by_task,
    hold_out_newest,
    rebase_labels,
    scramble_labels,
    within_task,
)
from mallorn_research.costmodels.forest import Forest
from mallorn_research.costmodels.mlp import MLP
from research.tests.unit.costmodels.judging import evaluate
from tests.unit.costmodels.synthetic import ids


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)[:, None]


def test_within_task_learns_from_the_first_rows_of_each_task() -> None:
    tasks = ids(5, 9, 5, 9, 5, 5, 5)
    train, test = within_task(tasks, column(*range(7)), share=0.6)
    assert train.tolist() == [0, 1, 2, 4]
    assert test.tolist() == [3, 5, 6]


def test_within_task_a_candidate_that_was_learned_from_is_not_judged_again() -> None:
    same_candidate_again = column(1, 2, 3, 1, 4)
    assert within_task(ids(5, 5, 5, 5, 5), same_candidate_again).test.tolist() == [4]
    of_another_task = within_task(ids(5, 5, 5, 6, 5), same_candidate_again, share=0.75)
    assert 4 in of_another_task.test.tolist()


def test_newest_holds_out_the_last_fifth_of_each_group_and_thins_both_sides() -> None:
    groups = np.repeat(ids(3, 8), 10)
    assert hold_out_newest(groups, 99, seed=0).test.tolist() == [8, 9, 18, 19]
    train, test = hold_out_newest(groups, 3, seed=0)
    assert (len(train), len(test)) == (3, 3)
    assert not set(train) & set(test)
    assert hold_out_newest(ids(1, 1, 1), 9, seed=0).test.tolist() == []


def test_by_task_judges_every_task_once_by_what_was_learned_from_others() -> None:
    tasks = np.random.default_rng(0).choice(ids(3, 10**12, 7, 1), size=60)
    splits = list(by_task(tasks, seed=0))
    assert len(splits) == 4
    assert sorted(np.concatenate([split.test for split in splits]).tolist()) == list(range(60))
    for train, test in splits:
        assert not set(tasks[train]) & set(tasks[test])
        assert len(train) + len(test) == 60


def test_by_task_folds_hold_several_tasks_and_depend_on_the_seed() -> None:
    tasks = np.repeat(np.arange(12), 5)
    folds = [[set(tasks[s.test]) for s in by_task(tasks, folds=3, seed=seed)] for seed in (0, 0, 1)]
    assert [len(fold) for fold in folds[0]] == [4, 4, 4]
    assert folds[0] == folds[1] != folds[2]
    assert len(list(by_task(tasks, folds=99, seed=0))) == 12


def test_by_network_a_task_that_two_networks_share_is_learned_for_neither() -> None:
    tasks = ids(1, 2, 3, 1, 2)
    splits = dict(by_network(tasks, {"resnet": {1, 2}, "bert": {2, 3}}))
    assert splits["resnet"].test.tolist() == [0, 1, 3, 4]
    assert splits["resnet"].train.tolist() == [2]
    assert splits["bert"].train.tolist() == [0, 3]


def test_by_host_each_is_judged_by_all_others_and_what_is_of_none_is_left_out() -> None:
    first, second, third = by_host(ids(1, 0, -1, 1, 2))
    assert (first.train.tolist(), first.test.tolist()) == ([0, 3, 4], [1])
    assert (second.train.tolist(), second.test.tolist()) == ([1, 4], [0, 3])
    assert (third.train.tolist(), third.test.tolist()) == ([0, 1, 3], [4])


def test_labels_to_learn_from_do_not_know_the_best_of_those_held_out() -> None:
    labels = np.array([-0.5, -1.5, FAILED_LABEL, FAILED_LABEL, 0.0], dtype=np.float32)
    assert rebase_labels(labels, ids(1, 1, 1, 2, 3)).tolist() == [0.0, -1.0, FAILED_LABEL, FAILED_LABEL, 0.0]


def test_what_was_late_stays_as_late_whatever_the_best_of_the_rest() -> None:
    labels = np.array([-0.5, LATE_LABEL, LATE_LABEL], dtype=np.float32)
    assert rebase_labels(labels, ids(1, 1, 2)).tolist() == [0.0, LATE_LABEL, LATE_LABEL]


def test_a_time_is_one_after_rebasing_too() -> None:
    labels = np.array([-0.25, LATE_LABEL - 0.25], dtype=np.float32)
    moved = rebase_labels(labels, ids(1, 1))
    assert moved.tolist() == pytest.approx([0.0, LATE_LABEL])
    assert is_time_label(moved).all()


def test_what_a_model_learns_from_is_rebased_and_from_the_train_side_only() -> None:
    seen: list[np.ndarray] = []

    class Spy(RandomModel):
        def fit(self, features: np.ndarray, labels: np.ndarray, groups: np.ndarray, *, seed: int) -> None:
            seen.extend((features, labels))

    labels = np.array([-3.0, -2.0, 0.0], dtype=np.float32)
    split = Split(ids(0, 1), ids(2))
    evaluate(Spy, column(4, 5, 6), labels, ids(1, 1, 1), split, seed=0)
    assert seen[0].ravel().tolist() == [4, 5]
    assert seen[1].tolist() == [-1.0, 0.0]


def test_scrambled_labels_are_the_same_labels_of_the_same_group() -> None:
    _, labels, groups = easy_data(200, seed=0)
    dealt = scramble_labels(labels, groups, seed=1)
    assert not np.array_equal(dealt, labels)
    for group in np.unique(groups):
        np.testing.assert_array_equal(np.sort(dealt[groups == group]), np.sort(labels[groups == group]))


@pytest.mark.parametrize("make", [XGBoost, LightGBM, LightGBMRank, Forest, MLP])
def test_what_is_learned_from_scrambled_labels_orders_at_chance(make: Callable[[], CostModel]) -> None:
    features, labels, groups = easy_data(900, seed=0)
    dealt = scramble_labels(labels, groups, seed=1)
    accuracies = [
        evaluate(make, features, dealt, groups, split, seed=0).pairwise
        for split in (within_task(groups, features), *by_task(groups, seed=0))
    ]
    assert math.isclose(np.mean(accuracies), 0.5, abs_tol=0.06)
