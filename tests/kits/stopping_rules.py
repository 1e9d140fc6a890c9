"""The conformance kit of stopping rules, and a kernel of known time to try them on."""

import numpy as np
import pytest

from mallorn.core.job_options import EvaluatorOptions
from mallorn.workers.measure.stopping.incremental_timing import Patience, Piece, take_timing
from mallorn.workers.measure.stopping.stopping_rule import StoppingRule, time_until_rule_stops

EVALUATORS = (
    EvaluatorOptions(),
    EvaluatorOptions(number=3, repeat=3, min_repeat_ms=0),
    EvaluatorOptions(number=1, repeat=1, min_repeat_ms=7),
    EvaluatorOptions(number=40, repeat=2, min_repeat_ms=300),
    EvaluatorOptions(number=1000, repeat=20, min_repeat_ms=1000),
)
MOST_TIMINGS = 200


class MadeUpKernel:
    """A kernel on a device whose every piece of runs is off by a little: what it ran, and for how long."""

    def __init__(self, run_us: float, noise: float = 0.002, *, seed: int = 0) -> None:
        self.run_us = run_us
        self.runs = 0
        self.spent_ms = 0.0
        self._noise = noise
        self._rng = np.random.default_rng(seed)

    def time_once(self, options: EvaluatorOptions) -> list[float]:
        """Take a timing as the runner does."""
        means = take_timing(options, self.run_us / 1e6, self._pieces, Patience())
        return [mean.mean_sec * 1e6 for mean in means]

    def _pieces(self, number: int, count: int) -> list[Piece]:
        return [Piece(number, self._runs(number)) for _ in range(count)]

    def _runs(self, number: int) -> float:
        mean_us = self.run_us * float(np.exp(self._rng.normal(0, self._noise)))
        self.runs += number
        self.spent_ms += number * mean_us / 1e3
        return mean_us / 1e6


class StoppingRuleTestCase:
    """Give `rule`; the kit times kernels of all lengths with it."""

    @pytest.fixture
    def rule(self) -> StoppingRule:
        raise NotImplementedError

    @pytest.fixture(params=EVALUATORS, ids=str)
    def evaluator(self, request: pytest.FixtureRequest) -> EvaluatorOptions:
        options: EvaluatorOptions = request.param
        return options

    @pytest.fixture(params=[0.5, 80.0, 3e3, 2e6])
    def run_us(self, request: pytest.FixtureRequest) -> float:
        return float(request.param)

    @pytest.mark.parametrize("best_us", [None, 1e-3, 80.0])
    def test_the_first_answer_is_a_timing_and_the_last_is_none(
        self, rule: StoppingRule, evaluator: EvaluatorOptions, run_us: float, best_us: float | None
    ) -> None:
        assert rule.next_timing(evaluator, [], best_us) is not None
        kernel, timings, times = MadeUpKernel(run_us), 0, list[float]()
        while (timing := rule.next_timing(evaluator, times, best_us)) is not None and timings <= MOST_TIMINGS:
            times += kernel.time_once(timing)
            timings += 1
        assert 0 < timings <= MOST_TIMINGS

    @pytest.mark.parametrize("best_over_time", [None, 1.005, 2.0])
    def test_what_may_win_is_timed_in_full(
        self, rule: StoppingRule, evaluator: EvaluatorOptions, run_us: float, best_over_time: float | None
    ) -> None:
        kernel = MadeUpKernel(run_us)
        time_until_rule_stops(rule, evaluator, kernel.time_once, best_over_time and best_over_time * run_us)
        assert kernel.runs >= evaluator.number * evaluator.repeat
        assert kernel.spent_ms >= 0.99 * evaluator.min_repeat_ms * evaluator.repeat

    @pytest.mark.parametrize("best_over_time", [None, 0.01, 0.99, 2.0])
    def test_no_more_is_asked_than_the_evaluator_does(
        self, rule: StoppingRule, evaluator: EvaluatorOptions, run_us: float, best_over_time: float | None
    ) -> None:
        asked, kernel = MadeUpKernel(run_us), MadeUpKernel(run_us)
        asked.time_once(evaluator)
        time_until_rule_stops(rule, evaluator, kernel.time_once, best_over_time and best_over_time * run_us)
        assert kernel.spent_ms <= 1.15 * asked.spent_ms + 2 * run_us / 1e3

    def test_the_same_times_get_the_same_answer(
        self, rule: StoppingRule, evaluator: EvaluatorOptions
    ) -> None:
        times: list[float] = []
        while (timing := rule.next_timing(evaluator, times, 90.0)) is not None:
            assert rule.next_timing(evaluator, list(times), 90.0) == timing
            times.extend([100.0] * timing.repeat)
