"""The StoppingRule interface: it decides when a candidate has been timed long enough."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from mallorn.core.check_plugin_classes import convert_plugin_errors
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.registry import resolve


class StoppingRule(ABC):
    """Decides, from the run times of one candidate so far, whether and how to take more of them.

    Contract
    - `next_timing` is a pure function of its arguments and returns None after finitely many timings.
    - If there are no run times yet, it does not return None.
    - `best_us` is the task's fastest time in the same measuring context, if the round knows it.
    - A candidate that may be faster than `best_us`, or any if it is None, is timed for at least as
      long and with at least as many runs as the evaluator asks for: rules save on slower candidates.
    - Except for rounding in one timing, a rule never asks for more than the evaluator does.
    """

    @abstractmethod
    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        """Return the options of the next timing; None if the run times suffice."""


def time_until_rule_stops(
    rule: StoppingRule,
    evaluator: EvaluatorOptions,
    time_once: Callable[[EvaluatorOptions], Sequence[float]],
    best_us: float | None = None,
) -> list[float]:
    """Time a candidate until the rule wants no more; return its times in microseconds."""
    run_us: list[float] = []
    while (timing := rule.next_timing(evaluator, run_us, best_us)) is not None:
        run_us.extend(time_once(timing))
    return run_us


class Fixed(StoppingRule):
    """Takes one timing, exactly as the job asks for it, like MetaSchedule itself."""

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        return None if run_us else evaluator


class NamedRule(StoppingRule):
    """A registered rule. Errors of the rule, not of the timings, become PluginFailed."""

    def __init__(self, name: str) -> None:
        self._part = ("stopping", name)
        with convert_plugin_errors(self._part):
            self._rule: StoppingRule = resolve(*self._part)()

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        with convert_plugin_errors(self._part):
            return self._rule.next_timing(evaluator, run_us, best_us)
