"""Stops as soon as a candidate's time is known well enough (AdaTune's adaptive evaluator)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from statistics import fmean, median, stdev
from typing import Final

from mallorn.core.job_options import EvaluatorOptions
from workers.measure.stopping.base import StoppingRule

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


SLICES: Final = 10
# Shorter ones would measure the device's clock and the scheduler's tick.
SHORTEST_MS: Final = 5
# A slice holds so many runs, or the one unmeasured run before each would cost as much as the slice.
FEWEST_RUNS: Final = 8
# After so many looks at a kernel of few runs a slice, what is left is taken in one piece.
PROBES: Final = 3
# What EvaluatorOptions allows one timing to be.
MOST_RUNS: Final = 1000
LONGEST_MS: Final = 10_000


def next_slice(evaluator: EvaluatorOptions, run_us: Sequence[float]) -> EvaluatorOptions | None:
    """The slice after those of `run_us`; None when they add up to what the evaluator asks for."""
    total_ms, runs = evaluator.repeat * evaluator.min_repeat_ms, evaluator.repeat * evaluator.number
    count = min(max(SLICES, evaluator.repeat), total_ms // SHORTEST_MS)
    if count < max(2, evaluator.repeat):
        return None if run_us else evaluator
    slice_ms, number = ceil(total_ms / count), ceil(runs / count)
    one = EvaluatorOptions(number=number, repeat=1, min_repeat_ms=slice_ms)
    if not run_us:
        return one
    if number >= FEWEST_RUNS or slice_ms * 1e3 >= FEWEST_RUNS * run_us[0]:
        return one if len(run_us) < count else None
    # Of long runs a few slices, which may be single runs, and the rest in as few as the limits allow.
    if len(run_us) > PROBES:
        return None
    taken = [max(one.number, ceil(one.min_repeat_ms * 1e3 / max(each_us, 1e-3))) for each_us in run_us]
    spent_ms = sum(number * each_us for number, each_us in zip(taken, run_us, strict=True)) / 1e3
    left, left_ms = runs - sum(taken), ceil(total_ms - spent_ms)
    if left <= 0 and left_ms <= 0:
        return None
    if len(run_us) < PROBES:
        return one
    left, left_ms = max(1, left), max(0, left_ms)
    repeat = max(1, ceil(left / MOST_RUNS), ceil(left_ms / LONGEST_MS))
    return EvaluatorOptions(number=ceil(left / repeat), repeat=repeat, min_repeat_ms=ceil(left_ms / repeat))
