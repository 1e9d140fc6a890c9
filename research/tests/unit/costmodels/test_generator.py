"""A generator tells what good schedules decided from what they might have decided."""

import numpy as np
import pytest

from mallorn.costmodels.xgboost_models import XGBoost
from mallorn_research.costmodels.decision_prefixes import mask_undecided_columns
from mallorn_research.costmodels.prefix_boosters import (
    GOOD_A_TASK,
    MOST_GOOD,
    GeneratorModel,
    decision_examples,
)
from tests.unit.costmodels.synthetic import measured

LANES = -1 - 25 - 4 - 8 - 12  # the column of the innermost factor of the last axis


@pytest.fixture(scope="module")
def fitted() -> GeneratorModel:
    model = GeneratorModel()
    model.fit(*measured(400), np.zeros(400, dtype=np.int64), seed=0)
    return model


def test_the_decisions_of_good_schedules_are_liked(fitted: GeneratorModel) -> None:
    """Whole vectors are innermost in what is fast here."""
    rows = mask_undecided_columns(measured(400, seed=3)[0], 0)
    lanes = rows[:, LANES]
    liked = fitted.rate_last_decision(rows)
    assert liked[lanes == 4].mean() > liked[lanes == 0].mean() + 0.5


def test_a_decision_is_compared_with_what_could_stand_in_its_place() -> None:
    rows, label = measured(300)
    made = decision_examples(rows, label, np.zeros(300, dtype=np.int64), np.random.default_rng(0))
    taken = made.rows[made.taken == 1]
    best = rows[np.argsort(-label, kind="stable")[:GOOD_A_TASK]]
    for row in taken[::17]:
        alike = (best == row) | np.isnan(row)
        assert alike.all(axis=1).any()
    share = made.weights[made.taken == 1].sum() / made.weights.sum()
    assert (
        share >= 0.5
    )  # others weigh no more than what was taken, and fewer where tiles would not multiply up


def test_slow_tasks_teach_as_much_as_fast_ones() -> None:
    """Labels are of each task's own best; a task of a few rows does not drown."""
    rows, label = measured(300)
    groups = np.where(np.arange(300) < 20, 0, 1)
    made = decision_examples(rows, label, groups, np.random.default_rng(0))
    few = {row.tobytes() for row in mask_undecided_columns(rows[:20], 5)}
    assert any(mask_undecided_columns(row[None], 5).tobytes() in few for row in made.rows[made.taken == 1])


def test_a_base_learns_from_no_more_schedules_than_a_family() -> None:
    rows = np.repeat(measured(500)[0], 10, axis=0)
    groups = np.arange(len(rows)) % 250
    made = decision_examples(rows, np.zeros(len(rows), np.float32), groups, np.random.default_rng(0))
    steps = len(np.unique(np.isnan(made.rows).sum(axis=1)))
    assert (made.taken == 1).sum() <= MOST_GOOD * (steps + 1)


def test_whole_rows_are_predicted_as_by_boosters_alone(fitted: GeneratorModel) -> None:
    alone = XGBoost()
    alone.fit(*measured(400), np.zeros(400, dtype=np.int64), seed=0)
    rows = measured(30, seed=5)[0]
    np.testing.assert_array_equal(fitted.predict(rows).mean, alone.predict(rows).mean)


def test_likings_survive_storing(fitted: GeneratorModel) -> None:
    rows = mask_undecided_columns(measured(30)[0], 10)
    np.testing.assert_array_equal(
        GeneratorModel.load(fitted.save()).rate_last_decision(rows), fitted.rate_last_decision(rows)
    )


def test_before_any_data_all_decisions_are_liked_alike() -> None:
    assert set(GeneratorModel().rate_last_decision(mask_undecided_columns(measured(30)[0], 10)).tolist()) == {
        0.0
    }
