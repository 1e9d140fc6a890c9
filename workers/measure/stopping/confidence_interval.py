"""Between which bounds the time of a candidate lies, as far as a few slices tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, median, stdev
from typing import Final

# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
T95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
T95_MANY: Final = 2.0
# Slices seconds apart agree no better than this, however well neighbours do.
LEAST_SPREAD: Final = 0.003
# A slice so many median deviations off the middle was disturbed, or warmed the caches up.
OUTLYING: Final = 8.0
# Fewer slices than this do not show which of them is odd.
JURY: Final = 4


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of the undisturbed slices and the half width of its 95 % confidence interval."""

    mean_us: float
    half_us: float

    @property
    def low_us(self) -> float:
        return max(0.0, self.mean_us - self.half_us)

    @property
    def relative(self) -> float:
        return self.half_us / self.mean_us if self.mean_us else inf


def interval(run_us: Sequence[float]) -> Interval:
    """What the slices say together; a single one says nothing of its own spread."""
    kept = undisturbed(run_us)
    mean_us = fmean(kept)
    if len(kept) < 2:
        return Interval(mean_us, inf)
    spread_us = max(stdev(kept), LEAST_SPREAD * mean_us)
    freedom = len(kept) - 1
    quantile = T95[freedom - 1] if freedom <= len(T95) else T95_MANY
    return Interval(mean_us, quantile * spread_us / sqrt(len(kept)))


def undisturbed(run_us: Sequence[float]) -> list[float]:
    """The slices without outliers, where there are enough to know one."""
    if len(run_us) < JURY:
        return list(run_us)
    middle_us = median(run_us)
    typical_us = max(median(abs(each - middle_us) for each in run_us), LEAST_SPREAD * middle_us)
    return [each for each in run_us if abs(each - middle_us) <= OUTLYING * typical_us]
