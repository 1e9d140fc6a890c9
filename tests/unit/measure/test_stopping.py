"""Stopping rules: when one timing is good enough."""

from collections.abc import Sequence

from mallorn.core.names import resolve
from mallorn.core.options import EvaluatorOptions
from workers.measure.stopping import Fixed, StoppingRule, take_times

EVALUATOR = EvaluatorOptions(number=3, repeat=2, min_repeat_ms=100)


class UntilThree(StoppingRule):
    """One run time after the other, three in all."""

    def next_timing(self, evaluator: EvaluatorOptions, run_us: Sequence[float]) -> EvaluatorOptions | None:
        return evaluator.model_copy(update={"repeat": 1}) if len(run_us) < 3 else None


def test_fixed_takes_one_timing_exactly_as_the_job_asks() -> None:
    asked: list[EvaluatorOptions] = []

    def time_once(options: EvaluatorOptions) -> list[float]:
        asked.append(options)
        return [2.0, 3.0]

    assert take_times(Fixed(), EVALUATOR, time_once) == [2.0, 3.0]
    assert asked == [EVALUATOR]


def test_a_rule_sees_what_was_timed_so_far() -> None:
    times = iter([5.0, 4.0, 3.0, 2.0])
    assert take_times(UntilThree(), EVALUATOR, lambda _: [next(times)]) == [5.0, 4.0, 3.0]


def test_fixed_is_registered() -> None:
    assert resolve("stopping", "fixed") is Fixed
