"""The StoppingRule seam: when is one timing of a candidate good enough?"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from mallorn.core.options import EvaluatorOptions


class StoppingRule(ABC):
    """Decides, from the run times of one candidate so far, how to take more of them.

    Contract
    - `next_timing` is a pure function of its arguments; it ends with None after finitely many timings.
    - The first answer, to no run times at all, is never None.
    """

    @abstractmethod
    def next_timing(self, evaluator: EvaluatorOptions, run_us: Sequence[float]) -> EvaluatorOptions | None:
        """How to take the next timing; None when those at hand will do."""


class Fixed(StoppingRule):
    """What stock MetaSchedule does: one timing, exactly as the job asks for it."""

    def next_timing(self, evaluator: EvaluatorOptions, run_us: Sequence[float]) -> EvaluatorOptions | None:
        return None if run_us else evaluator


def take_times(
    rule: StoppingRule, evaluator: EvaluatorOptions, time_once: Callable[[EvaluatorOptions], Sequence[float]]
) -> list[float]:
    """Time a candidate until the rule has enough; the run times in microseconds."""
    run_us: list[float] = []
    while (timing := rule.next_timing(evaluator, run_us)) is not None:
        run_us.extend(time_once(timing))
    return run_us
