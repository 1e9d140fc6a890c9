"""Stops as soon as a candidate's time is known well enough (AdaTune's adaptive evaluator)."""

from collections.abc import Sequence
from typing import Final

from mallorn.core.options import EvaluatorOptions
from workers.measure.stopping.base import StoppingRule
from workers.measure.stopping.interval import Interval, interval
from workers.measure.stopping.slices import next_slice

# How many times too long a single slice may be for a cause that is not the candidate's.
DISTURBED: Final = 2.0


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


class Racing(Adaptive):
    """As `adaptive`, and stops also when the lower bound is well above the task's best, however wide.

    How slow a hopeless candidate is need not be known to a hundredth; a model learns as much from a tenth.
    """

    def __init__(self, tight: float = 0.02, fewest: int = 3, behind: float = 1.1) -> None:
        super().__init__(tight, fewest)
        self.behind = behind

    def enough(self, run_us: Sequence[float], known: Interval, best_us: float) -> bool:
        low_us = run_us[0] / DISTURBED if len(run_us) == 1 else known.low_us
        return low_us > self.behind * best_us or super().enough(run_us, known, best_us)
