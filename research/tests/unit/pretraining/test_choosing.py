"""Active choice of the rows that a base learns from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.costmodels.testing import easy_data
from mallorn_research.pretraining.pretrain import select_evenly, select_uncertain_diverse_rows

ROWS, LABELS, GROUPS = easy_data(400, seed=0)


def pick(count: int, seed: int = 0, labels: np.ndarray = LABELS) -> np.ndarray:
    return select_uncertain_diverse_rows(ROWS, labels, GROUPS, count, np.random.default_rng(seed))


@given(st.integers(1, 60), st.integers(0, 9))
def test_an_even_choice_takes_as_many_of_each_task(count: int, seed: int) -> None:
    lines = select_evenly(GROUPS, count, np.random.default_rng(seed))
    assert len(set(lines.tolist())) == len(lines) == count
    taken = [int((GROUPS[lines] == group).sum()) for group in np.unique(GROUPS)]
    assert max(taken) - min(taken) <= 1


def test_a_task_with_few_rows_gives_all_of_them() -> None:
    groups = np.where(np.arange(400) < 5, 0, 1)
    lines = select_evenly(groups, 100, np.random.default_rng(0))
    assert (lines < 5).sum() == 5
    assert len(lines) == 100


@settings(deadline=None, max_examples=10)
@given(st.integers(12, 400))
def test_exactly_as_many_rows_are_chosen_each_once(count: int) -> None:
    lines = pick(count)
    assert len(set(lines.tolist())) == len(lines) == count
    assert set(GROUPS[lines]) == set(GROUPS)


def test_the_same_seed_chooses_the_same_rows() -> None:
    np.testing.assert_array_equal(pick(80), pick(80))
    assert not np.array_equal(pick(80), pick(80, seed=1))


def test_more_than_there_are_is_all() -> None:
    np.testing.assert_array_equal(pick(4000), np.arange(len(ROWS)))


def test_labels_of_rows_that_are_never_chosen_are_not_looked_at() -> None:
    lines = pick(80)
    others = LABELS.copy()
    others[np.setdiff1d(np.arange(len(LABELS)), lines)] = -2.0
    np.testing.assert_array_equal(pick(80, labels=others), lines)


def test_labels_of_chosen_rows_matter() -> None:
    assert not np.array_equal(pick(80, labels=LABELS[::-1].copy()), pick(80))


def test_more_rows_are_chosen_where_there_is_more_to_learn() -> None:
    rows, labels = ROWS.copy(), LABELS.copy()
    dull = np.arange(400) % 2 == 0
    rows[:, 30] = np.where(dull, 1, 0)
    labels[dull] = -1.0
    lines = select_uncertain_diverse_rows(
        rows, labels, np.zeros(400, dtype=np.int64), 120, np.random.default_rng(0)
    )
    assert dull[lines].mean() < 0.4


@pytest.mark.parametrize("count", [1, 2, 3])
def test_hardly_any_rows_can_be_chosen(count: int) -> None:
    assert len(pick(count)) == count
