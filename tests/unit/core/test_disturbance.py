"""What disturbed a job's timings, in words that say what it cost and what helps."""

import pytest

from mallorn.core.values.disturbance import Disturbance

QUIET = Disturbance(timed=8, kept_sec=0.8, rivals=0.1, cores=2)
BESIDE = Disturbance(timed=8, kept_sec=0.8, lost_sec=1.6, rivals=3.4, cores=2)


def test_of_a_quiet_host_there_is_nothing_to_say() -> None:
    assert QUIET.words == QUIET.hint == Disturbance().words == ""


def test_gaps_cost_seconds_and_no_truth() -> None:
    assert BESIDE.words == "other programs want 2.0 of 2 cores; times are taken in the gaps, 3.0 times slower"
    assert BESIDE.hint == ""


def test_bounds_are_counted_and_say_what_helps() -> None:
    lost = BESIDE.model_copy(update={"bounds": 3, "raised": False})
    assert lost.words.endswith("3 of 8 are only upper bounds")
    assert "--wait-for-quiet" in lost.hint
    assert "CAP_SYS_NICE" in lost.hint


def test_processors_that_nobody_here_uses_were_taken_from_outside() -> None:
    assert Disturbance(timed=1, kept_sec=0.1, lost_sec=0.1, cores=2).words.startswith("a quota, other")


def test_parts_add_up() -> None:
    both = Disturbance.of_all([QUIET, BESIDE.model_copy(update={"raised": False})])
    assert (both.timed, both.lost_sec, both.raised) == (16, 1.6, False)
    assert both.rivals == pytest.approx((0.1 + 3.4) / 2)
    assert both.slower == pytest.approx(2.0)
    assert Disturbance.of_all([]) == Disturbance()
