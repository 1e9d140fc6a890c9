"""Stops as soon as a candidate has lost."""

from collections.abc import Sequence
from typing import Final

from workers.measure.stopping.adaptive import Adaptive
from workers.measure.stopping.interval import Interval

# How many times too long a single slice may be for a cause that is not the candidate's.
DISTURBED: Final = 2.0


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
