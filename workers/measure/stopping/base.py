"""The StoppingRule seam: when is one timing of a candidate good enough?"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.plugin_errors import blame_plugins
from mallorn.core.registry import resolve


class StoppingRule(ABC):
    """Decides, from the run times of one candidate so far, how to take more of them.

    Contract
    - `next_timing` is a pure function of its arguments; it ends with None after finitely many timings.
    - The first answer, to no run times at all, is never None.
    - `best_us` is the fastest of the task in the same measuring context, as far as the round may know it.
    - A candidate that may be faster than that, or any where it is None, is timed for at least as long and
      with at least as many runs as the evaluator asks for: a rule saves on those that lose.
    - It never asks for more than the evaluator does, but for one timing's rounding.
    """

    @abstractmethod
    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        """How to take the next timing; None when those at hand will do."""


def take_times(
    rule: StoppingRule,
    evaluator: EvaluatorOptions,
    time_once: Callable[[EvaluatorOptions], Sequence[float]],
    best_us: float | None = None,
) -> list[float]:
    """Time a candidate until the rule has enough; the run times in microseconds."""
    run_us: list[float] = []
    while (timing := rule.next_timing(evaluator, run_us, best_us)) is not None:
        run_us.extend(time_once(timing))
    return run_us


class Fixed(StoppingRule):
    """What stock MetaSchedule does: one timing, exactly as the job asks for it."""

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        return None if run_us else evaluator


class NamedRule(StoppingRule):
    """Raises PluginFailed for what the rule itself raises; the timing between is none of its doing."""

    def __init__(self, name: str) -> None:
        self._part = ("stopping", name)
        with blame_plugins(self._part):
            self._rule: StoppingRule = resolve(*self._part)()

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        with blame_plugins(self._part):
            return self._rule.next_timing(evaluator, run_us, best_us)
