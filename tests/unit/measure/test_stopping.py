"""Stopping rules: when one timing is good enough."""

from collections.abc import Sequence
from statistics import median

import pytest

from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.registry import REGISTRY, resolve
from mallorn.workers.measure.stopping import Fixed, StoppingRule, time_until_rule_stops
from mallorn.workers.measure.stopping.adaptive import Adaptive, Racing
from tests.kits.stopping_rules import MadeUpKernel, StoppingRuleTestCase

EVALUATOR = EvaluatorOptions(number=3, repeat=2, min_repeat_ms=100)
STOCK = EvaluatorOptions()


class TestFixed(StoppingRuleTestCase):
    @pytest.fixture
    def rule(self) -> StoppingRule:
        return Fixed()


class TestAdaptive(StoppingRuleTestCase):
    @pytest.fixture
    def rule(self) -> StoppingRule:
        return Adaptive()


class TestRacing(StoppingRuleTestCase):
    @pytest.fixture
    def rule(self) -> StoppingRule:
        return Racing()


class UntilThree(StoppingRule):
    """One run time after the other, three in all."""

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        return evaluator.model_copy(update={"repeat": 1}) if len(run_us) < 3 else None


def test_fixed_takes_one_timing_exactly_as_the_job_asks() -> None:
    asked: list[EvaluatorOptions] = []

    def time_once(options: EvaluatorOptions) -> list[float]:
        asked.append(options)
        return [2.0, 3.0]

    assert time_until_rule_stops(Fixed(), EVALUATOR, time_once, 1.0) == [2.0, 3.0]
    assert asked == [EVALUATOR]


def test_a_rule_sees_what_was_timed_so_far() -> None:
    times = iter([5.0, 4.0, 3.0, 2.0])
    assert time_until_rule_stops(UntilThree(), EVALUATOR, lambda _: [next(times)]) == [5.0, 4.0, 3.0]


@pytest.mark.parametrize("rule", [Adaptive(), Racing()])
def test_the_first_of_a_task_is_timed_as_stock_does(rule: StoppingRule) -> None:
    assert rule.next_timing(STOCK, []) == STOCK
    assert rule.next_timing(STOCK, [50.0]) is None


@pytest.mark.parametrize(("slower", "share"), [(5.0, 0.15), (1.5, 0.35), (1.2, 0.35)])
def test_racing_drops_the_hopeless_early(slower: float, share: float) -> None:
    assert spent_ms(Racing(), slower) < share * STOCK.min_repeat_ms


def test_adaptive_takes_what_it_needs_to_be_sure() -> None:
    assert spent_ms(Adaptive(), 1.2) < 0.5 * STOCK.min_repeat_ms
    assert spent_ms(Adaptive(), 1.2, noise=0.05) > 0.8 * STOCK.min_repeat_ms


def spent_ms(rule: StoppingRule, slower: float, noise: float = 0.004) -> float:
    kernel = MadeUpKernel(100.0 * slower, noise)
    time_until_rule_stops(rule, STOCK, kernel.time_once, best_us=100.0)
    return kernel.spent_ms


@pytest.mark.parametrize("rule", [Adaptive(), Racing()])
@pytest.mark.parametrize("run_us", [3.0, 97.0, 4e3, 6e4])
def test_a_winners_time_agrees_with_long_timing(rule: StoppingRule, run_us: float) -> None:
    for seed in range(20):
        kernel = MadeUpKernel(run_us, noise=0.01, seed=seed)
        times = time_until_rule_stops(rule, STOCK, kernel.time_once, best_us=1.01 * run_us)
        assert median(times) == pytest.approx(run_us, rel=0.02)


def test_racing_is_fooled_by_no_single_disturbed_slice() -> None:
    class Disturbed(MadeUpKernel):
        """Another process takes the core during one slice."""

        slices = 0

        def time_once(self, options: EvaluatorOptions) -> list[float]:
            self.slices += 1
            return [each * (1.8 if self.slices == self.bad else 1.0) for each in super().time_once(options)]

        bad = 0

    for bad in range(1, 8):
        kernel = Disturbed(98.0)
        kernel.bad = bad
        times = time_until_rule_stops(Racing(), STOCK, kernel.time_once, best_us=100.0)
        assert kernel.spent_ms >= 99
        assert median(times) == pytest.approx(98.0, rel=0.02)


def test_every_rule_is_registered() -> None:
    assert set(REGISTRY["stopping"]) == {"fixed", "adaptive", "racing"}
    assert resolve("stopping", "fixed") is Fixed
