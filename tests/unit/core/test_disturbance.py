"""What disturbed a job's timings, in words that say what it cost and what helps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.values.disturbance import Disturbance

QUIET = Disturbance(candidates=8, valid_sec=0.8, other_programs=0.1, cores=2)
BESIDE = Disturbance(candidates=8, valid_sec=0.8, repeated_sec=1.6, other_programs=3.4, cores=2)


def test_of_a_quiet_host_there_is_nothing_to_say() -> None:
    assert QUIET.description == QUIET.hint == Disturbance().description == ""


def test_gaps_cost_seconds_and_no_truth() -> None:
    certain = "all 8 times are certain; timing takes 3.0 times as long"
    assert BESIDE.description == f"other programs use 2.0 of 2 cores; {certain}"
    assert (BESIDE.hint, BESIDE.is_uncertain) == ("", False)


def test_the_sentence_says_how_many_times_are_certain_and_one_thing_to_do() -> None:
    lost = BESIDE.model_copy(update={"upper_bounds": 3, "repeated_sec": 0.0})
    assert (
        lost.description
        == "other programs use 2.0 of 2 cores; 5 of 8 times are certain, the others upper bounds"
    )
    assert lost.hint == "use --wait-for-quiet to time candidates only while the host is quiet"
    assert lost.is_uncertain


def test_once_the_job_is_done_the_sentence_stands_in_the_past_tense() -> None:
    lost = BESIDE.model_copy(update={"upper_bounds": 3})
    assert lost.past_description == (
        "other programs used 2.0 of 2 cores; 5 of 8 times were certain, the others upper bounds; "
        "timing took 3.0 times as long"
    )


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


def test_processors_that_nobody_here_uses_were_taken_from_outside() -> None:
    assert Disturbance(candidates=1, valid_sec=0.1, repeated_sec=0.1, cores=2).description.startswith(
        "a quota, other"
    )


def test_parts_add_up() -> None:
    both = Disturbance.of_all([QUIET, BESIDE.model_copy(update={"has_priority": False})])
    assert (both.candidates, both.repeated_sec, both.has_priority) == (16, 1.6, False)
    assert both.other_programs == pytest.approx((0.1 + 3.4) / 2)
    assert both.slowdown_factor == pytest.approx(2.0)
    assert Disturbance.of_all([]) == Disturbance()
