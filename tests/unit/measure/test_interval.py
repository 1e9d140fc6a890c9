"""What a few slices say of a candidate's time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.workers.measure.stopping.adaptive import interval, remove_outliers

TIMES = st.lists(st.floats(0.1, 1e6), min_size=1, max_size=12)


@given(TIMES)
def test_the_interval_holds_its_mean(run_us: list[float]) -> None:
    known = interval(run_us)
    assert min(run_us) * 0.999 <= known.mean_us <= max(run_us) * 1.001
    assert 0 <= known.low_us <= known.mean_us


def test_one_slice_says_nothing_of_its_spread() -> None:
    assert interval([5.0]).half_us == math.inf
    assert interval([5.0]).low_us == 0


def test_slices_that_agree_by_chance_are_not_believed_blindly() -> None:
    assert interval([100.0, 100.0]).relative > 0.02


def test_the_true_mean_is_inside_in_most_cases() -> None:
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        known = interval(rng.normal(100, 2, size=5).tolist())
        inside += abs(known.mean_us - 100) <= known.half_us
    assert inside >= 0.9 * 400


@pytest.mark.parametrize("odd", [0, 3, 5])
def test_a_disturbed_slice_is_left_out(odd: int) -> None:
    times = [100.0, 101.0, 99.5, 100.2, 100.4, 99.9]
    times[odd] = 180.0
    assert 180.0 not in remove_outliers(times)
    assert interval(times).mean_us == pytest.approx(100, rel=0.01)


def test_among_few_nobody_is_called_odd() -> None:
    assert remove_outliers([100.0, 101.0, 180.0]) == [100.0, 101.0, 180.0]
