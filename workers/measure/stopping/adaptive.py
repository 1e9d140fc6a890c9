"""Stops as soon as a candidate's time is known well enough (AdaTune's adaptive evaluator)."""

from collections.abc import Sequence

from mallorn.core.options import EvaluatorOptions
from workers.measure.stopping.base import StoppingRule
from workers.measure.stopping.interval import Interval, interval
from workers.measure.stopping.slices import next_slice


class Adaptive(StoppingRule):
    """Short slices until the 95 % interval of their mean is tight and lies above the task's best.

    Where nothing is known to compare with, the timing is the evaluator's own, in one piece.
    """

    def __init__(self, tight: float = 0.02, fewest: int = 3) -> None:
        self.tight = tight
        self.fewest = fewest

    def next_timing(
        self, evaluator: EvaluatorOptions, run_us: Sequence[float], best_us: float | None = None
    ) -> EvaluatorOptions | None:
        if best_us is None:
            return None if run_us else evaluator
        if run_us and self.enough(run_us, interval(run_us), best_us):
            return None
        return next_slice(evaluator, run_us)

    def enough(self, run_us: Sequence[float], known: Interval, best_us: float) -> bool:
        """Whether the slices at hand say all that matters of a candidate."""
        return len(run_us) >= self.fewest and known.relative <= self.tight and known.low_us > best_us
