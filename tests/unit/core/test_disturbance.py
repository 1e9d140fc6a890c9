"""What disturbed a job's timings, in words that say what it cost and what helps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.disturbance import Disturbance
from tests.fixtures.kept import Kept

QUIET = Disturbance(candidates=8, valid_sec=0.8, other_programs=0.1, cores=2)
BESIDE = Disturbance(candidates=8, valid_sec=0.8, repeated_sec=1.6, other_programs=3.4, cores=2)


LOST = BESIDE.model_copy(update={"upper_bounds": 3})
# What is told of it while a job runs and afterwards, and what helps: tests/kept/disturbances.txt.
DISTURBANCES = {
    "nothing was timed": Disturbance(),
    "a quiet host": QUIET,
    "gaps cost seconds and no truth": BESIDE,
    "some times are upper bounds": LOST,
    "some times are upper bounds, and none was repeated": LOST.model_copy(update={"repeated_sec": 0.0}),
    "nobody here used the processors": Disturbance(candidates=1, valid_sec=0.1, repeated_sec=0.1, cores=2),
}


def test_what_a_disturbance_cost_and_what_helps(kept: Kept) -> None:
    texts = {
        state: f"{found.description}\n{found.past_description}\n{found.hint}"
        for state, found in DISTURBANCES.items()
    }
    kept("disturbances", texts)
    assert [found.is_uncertain for found in DISTURBANCES.values()] == [False] * 3 + [True] * 2 + [False]


@given(st.integers(1, 500), st.integers(0, 500), st.floats(0.0, 9.0), st.floats(0.0, 9.0))
def test_no_figure_is_told_that_says_nothing(timed: int, bounds: int, lost_sec: float, rivals: float) -> None:
    told = Disturbance(
        candidates=timed,
        upper_bounds=min(bounds, timed),
        valid_sec=1.0,
        repeated_sec=lost_sec,
        other_programs=rivals,
        cores=4,
    )
    for words in (told.description, told.past_description):
        assert "1.0 times" not in words
        assert "slower" not in words
        assert bool(words) == (told.upper_bounds > 0 or lost_sec >= 0.5)
        assert not told.upper_bounds or f"{timed - told.upper_bounds} of {timed} times" in words


def test_parts_add_up() -> None:
    both = Disturbance.of_all([QUIET, BESIDE.model_copy(update={"has_priority": False})])
    assert (both.candidates, both.repeated_sec, both.has_priority) == (16, 1.6, False)
    assert both.other_programs == pytest.approx((0.1 + 3.4) / 2)
    assert both.slowdown_factor == pytest.approx(2.0)
    assert Disturbance.of_all([]) == Disturbance()
