"""Beliefs: the contract, and how good the power law's forecasts are on curves that follow it."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallorn.services.planner import learning_curve_points
from mallorn.services.planner.planner_values import TaskView
from mallorn.services.planner.power_law_belief import (
    KNOT_SD,
    LEAPS,
    LOWER_SIDE,
    NOISE_SD,
    POWER_SD,
    REFERENCE,
    PowerLaw,
    fit,
)
from tests.kits.policies_and_beliefs import ROUND, BeliefTestCase, assert_sound, measured, task

TASKS, ROUNDS = 12, 10


class TestPowerLaw(BeliefTestCase):
    pass


latency = st.one_of(st.none(), st.floats(1e-3, 1e9))
views = st.builds(
    lambda at, seen, known, flops, weight: task(at, seen, known_us=known, flops=flops, weight=weight),
    st.integers(0, 50),
    st.lists(latency, max_size=8),
    st.one_of(st.none(), st.floats(1e-3, 1e9)),
    st.one_of(st.just(0.0), st.floats(0, 1e13)),
    st.integers(1, 100),
)


@settings(max_examples=60, deadline=None)
@given(tasks=st.lists(views, max_size=5, unique_by=lambda view: view.index), size=st.integers(1, 64))
def test_forecasts_are_sound_whatever_was_measured(tasks, size) -> None:
    for view, ahead in zip(tasks, PowerLaw().forecast(tasks, size), strict=True):
        assert_sound(ahead, view)


@settings(max_examples=20, deadline=None)
@given(tasks=st.lists(views, min_size=1, max_size=5, unique_by=lambda view: view.index))
def test_a_larger_round_promises_no_less(tasks) -> None:
    small, large = (PowerLaw().forecast(tasks, size) for size in (8, 64))
    for less, more in zip(small, large, strict=True):
        assert more.expected_us <= less.expected_us
        assert more.gain_probability >= less.gain_probability


def drawn_family(seed: int) -> Iterator[tuple[TaskView, list[float]]]:
    """Tasks whose rounds follow curves drawn from what the belief holds likely before the first one."""
    rng = np.random.default_rng(seed)
    before, prior = ROUND * np.arange(ROUNDS), REFERENCE
    for at in range(TASKS):
        start, drop = rng.normal(5.0, 1.0), rng.normal(prior.drop, prior.drop_sd)
        knot = np.exp(rng.normal(prior.log_knot, KNOT_SD))
        power = np.exp(rng.normal(prior.log_power, POWER_SD))
        scatter = rng.normal(0, 1, ROUNDS)
        scatter = np.where(scatter < 0, LOWER_SIDE * scatter, scatter)
        noise = np.exp(rng.normal(prior.log_noise, NOISE_SD)) * scatter
        log_us = start - drop * (1 - (1 + before / knot) ** -power) + noise
        yield task(at, flops=1e7), np.exp(log_us).tolist()


def outcomes(known: int) -> Iterator[tuple[bool, float, float]]:
    """For every task: whether its next round fell into the interval, and the expected and the true gain."""
    for seed in range(8):
        views, curves = zip(*drawn_family(seed), strict=True)
        seen = [task(view.index, curve[:known]) for view, curve in zip(views, curves, strict=True)]
        for curve, ahead in zip(curves, PowerLaw().forecast(seen, ROUND), strict=True):
            best = min(curve[:known])
            held = ahead.low_us <= curve[known] <= ahead.high_us
            yield held, ahead.gain_us / best, max(0.0, 1 - curve[known] / best)


@pytest.mark.parametrize("known", [1, 2, 4, 6])
def test_intervals_hold_four_in_five_of_what_follows_the_model(known) -> None:
    held = np.mean([inside for inside, _, _ in outcomes(known)])
    assert 0.7 <= held <= 0.9


def test_expected_gains_are_right_on_average() -> None:
    rows = [row for known in (3, 6) for row in outcomes(known)]
    expected, true = np.mean([row[1] for row in rows]), np.mean([row[2] for row in rows])
    assert 0.6 < expected / true < 1.6


def test_a_task_without_flops_is_compared_with_other_movers_of_memory() -> None:
    movers = [task(at, [3.0] * 3, flops=0.0) for at in range(1, 4)]
    conv = [task(at, [5000.0] * 3, flops=1e9) for at in range(4, 7)]
    ahead, *_ = PowerLaw().forecast([task(0, flops=0.0), *movers, *conv], ROUND)
    assert 1.0 < ahead.expected_us < 10.0


def test_flops_set_the_level_of_a_task_that_was_never_measured() -> None:
    siblings = [task(at, [100.0] * 3, flops=1e7) for at in range(1, 6)]
    small, large, *_ = PowerLaw().forecast([task(0, flops=1e6), task(9, flops=1e8), *siblings], ROUND)
    assert 5.0 < small.expected_us < 20.0
    assert 500.0 < large.expected_us < 2000.0


def test_failing_rounds_lower_the_promise() -> None:
    fine, failing = task(0, [50.0, 45.0]), task(0, [50.0, 45.0, None, None, None])
    [sure], [doubtful] = (PowerLaw().forecast([view], ROUND) for view in (fine, failing))
    assert doubtful.gain_probability < sure.gain_probability / 1.5


def test_what_falls_promises_more_than_what_stands_still() -> None:
    falling, still = task(0, [100.0, 80.0, 65.0, 55.0]), task(1, [55.0, 55.1, 55.0, 55.2])
    more, less = PowerLaw().forecast([falling, still], ROUND)
    assert more.gain_us > 2 * less.gain_us


def test_the_longer_a_task_stands_still_the_less_it_promises() -> None:
    noisy = [1476.0, 1462.0, 1472.0, 1486.0, 714.0, 722.0]
    promises = [
        PowerLaw().forecast([task(0, [*noisy, *[698.0] * more])], ROUND)[0].gain_probability
        for more in (1, 5, 30)
    ]
    assert promises == sorted(promises, reverse=True)
    assert promises[-1] < 0.05


def test_a_gain_ends_a_drought_and_noise_does_not() -> None:
    still = [90.0, 50.0, *[50.1] * 8]
    droughts = [
        learning_curve_points.curve_of(task(0, [*still, last]).points, None).drought for last in (49.9, 40.0)
    ]
    assert droughts == [9.0, 0.0]


def test_a_task_that_stood_still_since_its_first_round_may_still_leap() -> None:
    [ahead] = PowerLaw().forecast([task(0, [50.0] * 6)], ROUND)
    assert ahead.gain_probability > LEAPS / 7


def test_one_more_round_refits_few_tasks_of_many() -> None:
    views, curves = zip(*drawn_family(3), strict=True)
    tasks = [task(view.index, curve[:6]) for view, curve in zip(views, curves, strict=True)]
    PowerLaw().forecast(tasks, ROUND)
    refits = []
    for at in range(TASKS):
        tasks[at] = measured(tasks[at], ROUND, curves[at][6])
        before = fit.cache_info().misses
        PowerLaw().forecast(tasks, ROUND)
        refits.append(fit.cache_info().misses - before)
    assert np.mean(refits) <= 8
