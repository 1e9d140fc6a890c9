"""A job's way down, from its rounds."""

from mallorn.results.best_so_far_curve import (
    CurvePoint,
    best_total,
    best_us_by_task,
    curve,
)
from tests.fixtures.told import told_round, told_task

TASKS = [told_task(0, 4.0, weight=2), told_task(1, 10.0)]
ROUNDS = [
    told_round(0, 0, found_us=8.0),
    told_round(1, 1, found_us=12.0),
    told_round(2, 0, found_us=4.0, before_us=8.0),
    told_round(3, 1, found_us=15.0, before_us=12.0),
    told_round(4, 1, found_us=10.0, before_us=12.0),
]


def test_it_starts_where_every_task_has_a_time() -> None:
    assert curve(ROUNDS, TASKS, 1000.0) == [
        CurvePoint(32, 20.0, 28.0, 1),
        CurvePoint(48, 30.0, 20.0, 2),
        CurvePoint(64, 40.0, 20.0, 3),
        CurvePoint(80, 50.0, 18.0, 4),
    ]


def test_the_order_in_which_rounds_are_told_is_no_matter() -> None:
    assert curve(ROUNDS[::-1], TASKS, 1000.0) == curve(ROUNDS, TASKS, 1000.0)


def test_rounds_count_when_they_end_and_open_ones_not_at_all() -> None:
    overlapped = [told_round(0, 0, 8.0, finished_at=1030.0), told_round(1, 1, 12.0, finished_at=1020.0)]
    waiting = told_round(2, 0, None, before_us=8.0, state="leased", finished_at=None)
    assert curve([*overlapped, waiting], TASKS, 1000.0) == [CurvePoint(32, 30.0, 28.0, 0)]


def test_what_the_dataset_knew_is_a_point_before_the_first_trial() -> None:
    rounds = [told_round(0, 0, found_us=4.0, before_us=5.0)]
    assert curve(rounds, TASKS, 1000.0)[0] == CurvePoint(0, 0.0, 20.0)


def test_a_task_that_is_never_timed_hides_nothing() -> None:
    assert curve(ROUNDS[:1], [TASKS[0], told_task(1, None)], 1000.0) == [CurvePoint(16, 10.0, 16.0, 0)]


def test_a_job_without_times_has_no_curve() -> None:
    assert curve([], [told_task(0, None)], 1000.0) == []
    assert curve([], [], 1000.0) == []


def test_the_curve_is_read_at_trials_and_seconds() -> None:
    points = curve(ROUNDS, TASKS, 1000.0)
    assert [best_total(points, trials) for trials in (31, 32, 79, 500)] == [None, 28.0, 20.0, 18.0]
    assert [best_total(points, sec=sec) for sec in (19.0, 35.0, 99.0)] == [None, 20.0, 18.0]


def test_what_a_job_reached_is_untouched_by_what_others_found_later() -> None:
    lowered_since = [told_task(0, 1.0, weight=2), told_task(1, 10.0), told_task(2, 7.0)]
    assert best_us_by_task(ROUNDS, lowered_since) == {0: 4.0, 1: 10.0, 2: 7.0}
