"""A timing lasts as long as it was asked to, at the first go wherever the rough idea was right."""

from hypothesis import given
from hypothesis import strategies as st

from mallorn.core.options import EvaluatorOptions
from workers.tvm.runner import MOST_RUNS, long_enough

OPTIONS = st.builds(
    EvaluatorOptions,
    number=st.integers(1, 1000),
    repeat=st.integers(1, 10),
    min_repeat_ms=st.integers(0, 10_000),
)


@given(options=OPTIONS, rough_sec=st.floats(0, 100))
def test_the_evaluators_own_terms_are_kept(options: EvaluatorOptions, rough_sec: float) -> None:
    arguments = long_enough(options, rough_sec)
    assert (arguments["repeat"], arguments["min_repeat_ms"]) == (options.repeat, options.min_repeat_ms)
    assert arguments["number"] >= options.number


@given(options=OPTIONS, rough_sec=st.floats(1e-6, 100))
def test_so_many_runs_are_long_enough(options: EvaluatorOptions, rough_sec: float) -> None:
    number = long_enough(options, rough_sec)["number"]
    assert number == MOST_RUNS or number * rough_sec * 1e3 >= options.min_repeat_ms


def test_a_slow_program_runs_no_more_often_than_asked() -> None:
    assert long_enough(EvaluatorOptions(number=3, min_repeat_ms=100), 0.5)["number"] == 3
