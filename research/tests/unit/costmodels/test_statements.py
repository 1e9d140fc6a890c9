"""Scores of statements add up to those of their candidates."""

import numpy as np
import pytest

from mallorn.core.errors import InvalidRequest
from mallorn.costmodels.testing import easy_data
from mallorn.costmodels.views import STATEMENTS
from mallorn_research.costmodels.statement_boosters import (
    LISTED,
    Statements,
    draw_group_lists,
    lines_of,
    squared_error_gradient,
)


def programs(*counts: int) -> np.ndarray:
    """So many statements of the kinds 1 and 2, alternately."""
    table = np.zeros((len(counts), *STATEMENTS.shape), dtype=np.float32)
    for row, count in enumerate(counts):
        table[row, :count, 0] = 1
        table[row, :count, 7] = 1 + np.arange(count) % 2
    return table.reshape(len(counts), -1)


def test_what_is_no_statement_is_no_line_and_the_others_add_up() -> None:
    lines = lines_of(programs(2, 0, 3))
    assert lines.features.shape == (5, 164)
    assert lines.row.tolist() == [0, 0, 2, 2, 2]
    assert lines.features[:, 6].tolist() == [1, 2, 1, 2, 1]
    assert lines.sums(np.array([1.0, 2, 3, 4, 5])).tolist() == [3, 0, 12]


def test_one_newton_step_of_all_statements_brings_the_sum_to_its_goal() -> None:
    lines = lines_of(programs(2, 1))
    scores, goal = np.array([1.0, 2.0, 5.0]), np.array([-4.0, -3.0])
    slope, bend = squared_error_gradient(lines, scores, goal, np.array([0.5, 2.0]))
    assert lines.sums(scores - slope / bend) == pytest.approx(goal)


def test_programs_longer_than_any_that_was_measured_are_slower_still() -> None:
    counts = np.tile([1, 2, 3, 4, 5, 6], 30)
    model = Statements()
    model.fit(programs(*counts), (-0.2 * counts).astype(np.float32), np.zeros(180, dtype=np.int64), seed=0)
    mean = model.predict(programs(2, 5, 9)).mean
    assert mean[0] > mean[1] > mean[2]


def test_lists_hold_every_row_but_one_that_is_alone_and_no_two_groups() -> None:
    groups = np.array([3] * 40 + [9] * 17 + [5] * 4)
    made = list(draw_group_lists(groups, np.random.default_rng(0)))
    assert {part.shape for part in made} == {(1, 8), (1, 4), (3, LISTED)}
    rows = np.concatenate([part.ravel() for part in made])
    assert len(rows) == len(set(rows.tolist())) == 60
    for part in made:
        assert (groups[part] == groups[part][:, :1]).all()


def test_rows_of_another_view_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="do not fit the view statements"):
        Statements().fit(*easy_data(20, seed=0), seed=0)
