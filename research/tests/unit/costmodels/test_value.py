"""The value of a partial schedule: what its best completion reaches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.costmodels.base import Matrix
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.decision_prefixes import (
    DECIDED,
    LAST,
    STEP,
    continue_prefixes,
    find_outermost_columns,
    has_reproducible_columns,
    mask_undecided_columns,
)
from mallorn_research.costmodels.prefix_boosters import MOST_STATES, ValueModel, draw_states
from tests.unit.costmodels.synthetic import SPACE, measured


def drawn(count: int, seed: int = 0) -> Matrix:
    return SPACE.features(SPACE.sample(np.random.default_rng(seed), count))


@pytest.fixture(scope="module")
def fitted() -> ValueModel:
    model = ValueModel()
    model.fit(*measured(300), np.zeros(300, dtype=np.int64), seed=0)
    return model


def test_a_derived_column_is_open_while_any_column_it_stands_on_is() -> None:
    rows = drawn(50)
    assert has_reproducible_columns(rows).all()
    for step in range(-1, LAST + 1):
        row = mask_undecided_columns(rows, step)
        known = ~np.isnan(row).any(axis=0)
        assert (known == (step >= STEP)).all()
        np.testing.assert_array_equal(row[:, known], rows[:, known])
    assert not np.isnan(mask_undecided_columns(rows, LAST)).any()
    assert (np.unique(STEP[DECIDED]) == np.arange(LAST + 1)).all()


@given(st.integers(0, 99), st.integers(-1, LAST), st.integers(0, LAST))
def test_a_way_on_keeps_what_is_decided_and_its_tiles_multiply_up(seed: int, step: int, more: int) -> None:
    rows, donors = drawn(40, seed), drawn(40, seed + 1)
    rows = rows[rows[:, :57].argmax(axis=1) == rows[0, :57].argmax()]
    steps, until = np.full(len(rows), step), np.full(len(rows), max(step, more))
    mixed, good = continue_prefixes(rows, donors[: len(rows)], steps, until, find_outermost_columns(rows))
    before, after = mask_undecided_columns(rows, steps)[good], mask_undecided_columns(mixed, steps)[good]
    unruled = [at for at in range(len(STEP)) if at not in set(find_outermost_columns(rows).tolist())]
    np.testing.assert_array_equal(before[:, unruled], after[:, unruled])
    if good.any() and until[0] == LAST:
        assert has_reproducible_columns(mixed[good]).all()


def test_states_have_the_best_label_that_was_seen_behind_them() -> None:
    rows, label = measured(200)
    made = draw_states(rows, label, np.zeros(200, dtype=np.int64), np.random.default_rng(0))
    assert len(made.at) == 6 * 200
    for at in range(0, len(made.at), 97):
        state = mask_undecided_columns(rows[made.at[at]][None], int(made.steps[at]))
        alike = ((mask_undecided_columns(rows, int(made.steps[at])) == state) | np.isnan(state)).all(axis=1)
        assert made.seen[at] == label[alike].max()


def test_a_base_learns_from_no_more_states_than_a_family() -> None:
    rows = np.repeat(drawn(1000), 20, axis=0)
    made = draw_states(
        rows, np.zeros(len(rows), np.float32), np.arange(len(rows)) % 7, np.random.default_rng(0)
    )
    assert len(made.at) <= MOST_STATES


def test_a_whole_row_is_worth_what_is_predicted_of_it(fitted: ValueModel) -> None:
    rows = drawn(30, 3)
    np.testing.assert_array_equal(fitted.score_prefixes(rows), fitted.predict(rows).mean)
    mixed = np.where(np.arange(30)[:, None] < 10, rows, mask_undecided_columns(rows, 0))
    np.testing.assert_array_equal(fitted.score_prefixes(mixed)[:10], fitted.predict(rows).mean[:10])


def test_whole_rows_are_predicted_as_by_boosters_alone(fitted: ValueModel) -> None:
    alone = XGBoost()
    alone.fit(*measured(300), np.zeros(300, dtype=np.int64), seed=0)
    np.testing.assert_array_equal(fitted.predict(drawn(30)).mean, alone.predict(drawn(30)).mean)


@pytest.mark.parametrize("step", [0, 6, 10])
def test_it_orders_prefixes_by_their_best_completions(fitted: ValueModel, step: int) -> None:
    """Of many random completions; the mean row of a prefix says less than its best."""
    rows, label = measured(20_000, seed=9)
    hidden = np.nan_to_num(mask_undecided_columns(rows, step), nan=-1.0)
    states, of, count = np.unique(hidden, axis=0, return_inverse=True, return_counts=True)
    best = np.full(len(states), -np.inf, dtype=np.float32)
    np.maximum.at(best, of.ravel(), label)
    often = count >= 30
    values = fitted.score_prefixes(np.where(states == -1.0, np.float32(np.nan), states)[often])
    groups = np.zeros(int(often.sum()), dtype=np.int64)
    assert pairwise_accuracy(values, best[often], groups) > 0.8


def test_values_survive_storing(fitted: ValueModel) -> None:
    rows = mask_undecided_columns(drawn(30), 10)
    np.testing.assert_array_equal(
        ValueModel.load(fitted.save()).score_prefixes(rows), fitted.score_prefixes(rows)
    )


def test_before_any_data_every_prefix_is_worth_the_same() -> None:
    assert len(set(ValueModel().score_prefixes(mask_undecided_columns(drawn(30), 10)).tolist())) == 1
