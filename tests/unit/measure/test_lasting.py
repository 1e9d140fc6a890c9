"""A timing lasts as long as it was asked to, counts every run that nothing disturbed, and few others."""

from collections.abc import Sequence
from itertools import cycle, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.job_options import EvaluatorOptions
from mallorn.workers.measure.stopping.incremental_timing import Patience, Piece, take_timing

OPTIONS = st.builds(
    EvaluatorOptions,
    number=st.integers(1, 1000),
    repeat=st.integers(1, 3),
    min_repeat_ms=st.integers(0, 10_000),
)
SECONDS = st.floats(1e-7, 10)
A_TENTH = EvaluatorOptions(number=1, min_repeat_ms=100)
QUIET, BUSY = 0.001, 0.6


class Clockwork:
    """A program whose runs take what they are told to, and a record of how many were made at a time."""

    def __init__(self, *each_sec: float, disturbed: Sequence[float | None] = (None,)) -> None:
        self.calls: list[int] = []
        self._each_sec = list(each_sec)
        self._disturbed = cycle(disturbed)

    def __call__(self, number: int, count: int) -> list[Piece]:
        self.calls.append(number * count)
        each_sec = self._each_sec[min(len(self.calls), len(self._each_sec)) - 1]
        return [self._piece(number, each_sec, next(self._disturbed)) for _ in range(count)]

    def _piece(self, number: int, each_sec: float, disturbed: float | None) -> Piece:
        """One that was disturbed takes longer by as much."""
        return Piece(number, each_sec / (1 - (disturbed or 0.0)), disturbed)


@given(options=OPTIONS, rough_sec=SECONDS, each_sec=SECONDS)
def test_the_evaluators_own_terms_are_kept(
    options: EvaluatorOptions, rough_sec: float, each_sec: float
) -> None:
    program = Clockwork(each_sec)
    means = take_timing(options, rough_sec, program, Patience())
    assert [mean.mean_sec for mean in means] == pytest.approx([each_sec] * options.repeat)
    assert sum(program.calls) >= options.number * options.repeat
    assert sum(program.calls) * each_sec * 1e3 >= options.min_repeat_ms * options.repeat * (1 - 1e-9)


@given(rough_sec=st.floats(1e-6, 1e-3), error=st.floats(0.1, 2.0))
def test_a_rough_idea_that_is_far_off_costs_little(rough_sec: float, error: float) -> None:
    each_sec = rough_sec * error
    program = Clockwork(each_sec)
    take_timing(A_TENTH, rough_sec, program, Patience())
    assert sum(program.calls) * each_sec <= 0.1 * 1.05 + 12 * each_sec
    assert len(program.calls) <= 3


def test_every_piece_counts_by_its_runs() -> None:
    program = Clockwork(0.02, 0.01)
    (mean,) = take_timing(A_TENTH, 0.02, program, Patience())
    first, *others = program.calls
    assert mean.mean_sec == pytest.approx((first * 0.02 + sum(others) * 0.01) / mean.runs)


def test_a_slow_program_runs_no_more_often_than_asked() -> None:
    program = Clockwork(0.5)
    take_timing(EvaluatorOptions(number=3, min_repeat_ms=100), 0.5, program, Patience())
    assert program.calls == [3]


@given(gap=st.integers(1, 6), each_sec=st.floats(1e-5, 9e-3))
def test_what_was_disturbed_is_taken_again_in_the_gaps(gap: int, each_sec: float) -> None:
    program = Clockwork(each_sec, disturbed=[*repeat(BUSY, gap), QUIET])
    patience = Patience(60.0)
    (mean,) = take_timing(A_TENTH, each_sec, program, patience)
    assert mean.mean_sec == pytest.approx(each_sec, rel=0.01)
    assert mean.disturbed == pytest.approx(QUIET)
    assert mean.sec >= 0.1 * (1 - 1e-9)
    assert patience.lost_sec > 0


@given(patience_sec=st.floats(0, 2))
def test_no_more_seconds_are_lost_than_there_is_patience(patience_sec: float) -> None:
    program = Clockwork(1e-3, disturbed=[BUSY])
    patience = Patience(patience_sec)
    (mean,) = take_timing(A_TENTH, 1e-3, program, patience)
    assert mean.disturbed == pytest.approx(BUSY)
    assert mean.mean_sec == pytest.approx(1e-3 / (1 - BUSY))
    assert patience.lost_sec <= patience_sec + 2 * 0.1 / (1 - BUSY)


def test_when_patience_ends_the_least_disturbed_pieces_are_the_bound() -> None:
    program = Clockwork(1e-3, disturbed=[0.9, 0.1, 0.5])
    (mean,) = take_timing(A_TENTH, 1e-3, program, Patience(2.0))
    assert mean.disturbed == pytest.approx(0.1)
    assert mean.mean_sec == pytest.approx(1e-3 / 0.9)


def test_where_patience_ended_long_ago_every_mean_is_still_taken_once() -> None:
    program = Clockwork(1e-3, disturbed=[BUSY])
    means = take_timing(EvaluatorOptions(repeat=3, min_repeat_ms=100), 1e-3, program, Patience(-1.0))
    assert [mean.mean_sec for mean in means] == pytest.approx([1e-3 / (1 - BUSY)] * 3)
    assert len(program.calls) == 3


def test_half_a_timing_without_disturbance_is_one() -> None:
    program = Clockwork(1e-3, disturbed=[QUIET, BUSY, QUIET, BUSY])
    (mean,) = take_timing(A_TENTH, 1e-3, program, Patience(0.06))
    assert mean.disturbed == pytest.approx(QUIET)
    assert 0.05 <= mean.sec <= 0.1
