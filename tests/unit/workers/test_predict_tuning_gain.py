"""What trials would win follows from what first guesses left open, and is told as surely as it is known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.expected_gain import TaskGap, TuningGain
from mallorn.workers.finish.predict_tuning_gain import (
    GuessedTask,
    gap_closed,
    predict_tuning_gain,
    share_closed,
)

gaps = st.builds(TaskGap, operator=st.just("conv2d"), initial_gap=st.floats(0, 3), closed_gap=st.floats(0, 3))
seen = st.lists(gaps, max_size=8)


def task(open_: float, us: float = 1000.0, op: str = "conv2d", name: str = "conv2d_7") -> GuessedTask:
    return GuessedTask(name, us, TaskGap(operator=op, initial_gap=open_, closed_gap=0.0))


def told(*tasks: GuessedTask, rows: list[TaskGap] | None = None) -> TuningGain:
    return predict_tuning_gain(tasks, rows or [], 0.0)


@given(rows=seen, open_=st.floats(0, 3), more=st.floats(0, 2), us=st.floats(1, 1e6))
def test_the_more_a_guess_leaves_open_the_more_is_expected(
    rows: list[TaskGap], open_: float, more: float, us: float
) -> None:
    less, wide = (told(task(gap), task(0.1, us, name="other"), rows=rows) for gap in (open_, open_ + more))
    assert less.gain <= wide.gain
    assert less.high <= wide.high


@given(rows=seen, open_=st.floats(0.01, 3), won=st.floats(0, 3), more=st.floats(0, 1))
def test_the_more_trials_closed_of_an_operator_the_more_is_expected_of_it(
    rows: list[TaskGap], open_: float, won: float, more: float
) -> None:
    less, much = (
        told(task(0.5), rows=[*rows, TaskGap(operator="conv2d", initial_gap=open_, closed_gap=each)])
        for each in (won, won + more)
    )
    assert less.gain <= much.gain + 1e-12


@given(rows=seen, opens=st.lists(st.floats(0, 3), min_size=1, max_size=5))
def test_the_interval_holds_what_is_expected_and_nothing_is_won_twice(
    rows: list[TaskGap], opens: list[float]
) -> None:
    gain = told(*(task(open_, name=str(at)) for at, open_ in enumerate(opens)), rows=rows)
    assert 0 <= gain.low <= gain.gain <= gain.high < 1


def test_without_jobs_of_its_context_an_operator_is_said_to_be_unknown() -> None:
    gain = told(
        task(0.5),
        task(0.5, op="matmul", name="dense_2"),
        rows=[TaskGap(operator="matmul", initial_gap=1, closed_gap=0)],
    )
    assert gain.unseen_operators == ["conv2d"]
    assert "nothing is known of conv2d on such a host" in gain.gain_text


def test_what_was_seen_here_outweighs_other_machines() -> None:
    nothing_won = [TaskGap(operator="conv2d", initial_gap=1.0, closed_gap=0.0)] * 50
    assert told(task(0.5)).gain > 0.05
    known = told(task(0.5), rows=nothing_won)
    assert known.high < 0.02
    assert known.gain_text.startswith("trials would win little: nothing expected above 2 %")


def test_rows_of_another_operator_do_not_count() -> None:
    other = [TaskGap(operator="softmax", initial_gap=2.0, closed_gap=2.0)]
    assert told(task(0.5), rows=other).gain == told(task(0.5)).gain


def test_the_tasks_that_win_the_most_are_named_and_the_rest_of_a_run_wins_nothing() -> None:
    heavy, light, done = task(0.5), task(0.5, 10.0, name="light"), task(0.0, 5000.0, name="done")
    assert told(light, done, heavy).tasks[0] == "conv2d_7"
    alone = predict_tuning_gain([heavy], [], 1000.0)
    assert predict_tuning_gain([heavy], [], 2000.0).gain == pytest.approx(alone.gain / 2)


@pytest.mark.parametrize("limit_us", [None, 0.0, 100.0, 140.0], ids=["unknown", "none", "met", "beaten"])
def test_nothing_is_open_where_no_limit_is_left(limit_us: float | None) -> None:
    assert gap_closed("conv2d", 100.0, 90.0, limit_us).initial_gap == 0.0
    assert told(GuessedTask("w", 100.0, gap_closed("conv2d", 100.0, 100.0, limit_us))).gain == 0.0


def test_trials_that_found_nothing_faster_closed_nothing() -> None:
    assert gap_closed("conv2d", 100.0, 104.0, 50.0).closed_gap == 0.0


def test_large_gaps_say_more_of_the_share_than_small_ones() -> None:
    rows = [TaskGap(initial_gap=1.0, closed_gap=0.1), TaskGap(initial_gap=0.01, closed_gap=0.01)]
    assert share_closed(rows) == pytest.approx((0.1, 0.11 / 1.01, 0.11 / 1.01))
