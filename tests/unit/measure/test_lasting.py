"""A timing lasts as long as it was asked to, counts every run it took, and never takes many more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.options import EvaluatorOptions
from workers.measure.stopping.lasting import take_timing

OPTIONS = st.builds(
    EvaluatorOptions,
    number=st.integers(1, 1000),
    repeat=st.integers(1, 3),
    min_repeat_ms=st.integers(0, 10_000),
)
SECONDS = st.floats(1e-7, 10)


class Clockwork:
    """A program whose runs all take as long, and a record of how many were made."""

    def __init__(self, *each_sec: float) -> None:
        self.pieces: list[int] = []
        self._each_sec = list(each_sec)

    def __call__(self, number: int) -> float:
        self.pieces.append(number)
        return self._each_sec[min(len(self.pieces), len(self._each_sec)) - 1]


@given(options=OPTIONS, rough_sec=SECONDS, each_sec=SECONDS)
def test_the_evaluators_own_terms_are_kept(
    options: EvaluatorOptions, rough_sec: float, each_sec: float
) -> None:
    program = Clockwork(each_sec)
    times = take_timing(options, rough_sec, program)
    assert times == pytest.approx([each_sec] * options.repeat)
    assert sum(program.pieces) >= options.number * options.repeat
    assert sum(program.pieces) * each_sec * 1e3 >= options.min_repeat_ms * options.repeat * (1 - 1e-9)


@given(rough_sec=st.floats(1e-6, 1e-3), error=st.floats(0.1, 2.0))
def test_a_rough_idea_that_is_far_off_costs_little(rough_sec: float, error: float) -> None:
    each_sec = rough_sec * error
    program = Clockwork(each_sec)
    take_timing(EvaluatorOptions(number=1, min_repeat_ms=100), rough_sec, program)
    assert sum(program.pieces) * each_sec <= 0.1 * 1.05 + 2 * each_sec
    assert len(program.pieces) <= 3


def test_every_piece_counts_by_its_runs() -> None:
    program = Clockwork(0.02, 0.01)
    (mean_sec,) = take_timing(EvaluatorOptions(number=1, min_repeat_ms=100), 0.02, program)
    first, *others = program.pieces
    runs = first + sum(others)
    assert mean_sec == pytest.approx((first * 0.02 + sum(others) * 0.01) / runs)


def test_a_slow_program_runs_no_more_often_than_asked() -> None:
    program = Clockwork(0.5)
    take_timing(EvaluatorOptions(number=3, min_repeat_ms=100), 0.5, program)
    assert program.pieces == [3]
