"""Stopping rules that end once a candidate's time is known well enough (as in AdaTune).

They split a timing into slices, and compute their precision and the length of the next.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from mallorn.workers.measure.stopping.incremental_timing import Evaluator
from mallorn.workers.measure.stopping.stopping_rule import StoppingRule

T = TypeVar("T", bound=Evaluator)
# Limits of the stopping rules `adaptive` and `racing`.
TIGHT: Final = 0.02
FEWEST: Final = 3
BEHIND: Final = 1.1
# A disturbance may make a single slice this many times too long.
DISTURBED: Final = 2.0
# Two-sided 95 % quantiles of Student's t for 1, 2, ... degrees of freedom.
T95: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
T95_MANY: Final = 2.0
# Least relative spread: slices seconds apart differ by this much, even if consecutive ones do not.
LEAST_SPREAD: Final = 0.003
# A slice so many median deviations from the median was disturbed, or warmed the caches up.
OUTLYING: Final = 8.0
# Fewer slices than this do not show which of them is an outlier.
JURY: Final = 4
SLICES: Final = 10
# Shorter slices would measure the device's clock and the scheduler's tick.
SHORTEST_MS: Final = 5
# With fewer runs a slice, the one uncounted run before each slice would cost too much.
FEWEST_RUNS: Final = 8
# After so many slices of a kernel with few runs a slice, the rest is taken in one piece.
PROBES: Final = 3
# Limits of EvaluatorOptions for one timing.
MOST_RUNS: Final = 1000
LONGEST_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean time without outliers, and the half width of its 95 % confidence interval."""

    mean_us: float
    half_us: float

    @property
    def low_us(self) -> float:
        return max(0.0, self.mean_us - self.half_us)

    @property
    def relative(self) -> float:
        return self.half_us / self.mean_us if self.mean_us else inf


def interval(run_us: Sequence[float]) -> Interval:
    """Return the confidence interval of the mean of a candidate's slices (short series of
    runs); its width is infinite for a single slice."""
    quiet = remove_outliers(run_us)
    mean_us = fmean(quiet)
    if len(quiet) < 2:
        return Interval(mean_us, inf)
    spread_us = max(stdev(quiet), LEAST_SPREAD * mean_us)
    freedom = len(quiet) - 1
    quantile = T95[freedom - 1] if freedom <= len(T95) else T95_MANY
    return Interval(mean_us, quantile * spread_us / sqrt(len(quiet)))


def remove_outliers(run_us: Sequence[float]) -> list[float]:
    """Return the slices' times without outliers; all if there are fewer than JURY."""
    if len(run_us) < JURY:
        return list(run_us)
    middle_us = median(run_us)
    typical_us = max(median(abs(us - middle_us) for us in run_us), LEAST_SPREAD * middle_us)
    return [us for us in run_us if abs(us - middle_us) <= OUTLYING * typical_us]


def is_known_slower(run_us: Sequence[float], best_us: float, behind: float | None) -> bool:
    """Return whether the times of slices prove that the candidate is slower than `best_us`:
    their confidence interval is narrow and above `best_us` or, with `behind`, its lower end
    is more than `behind` times `best_us`."""
    interval_us = interval(run_us)
    low_us = run_us[0] / DISTURBED if len(run_us) == 1 else interval_us.low_us
    if behind is not None and low_us > behind * best_us:
        return True
    return len(run_us) >= FEWEST and interval_us.relative <= TIGHT and interval_us.low_us > best_us


def next_slice_options(
    evaluator: T, run_us: Sequence[float], best_us: float | None, behind: float | None
) -> T | None:
    """Return the options of the slice (series of runs) to time after those in `run_us`;
    None if they make up a full timing, or prove that the candidate is slower than
    `best_us`. A full timing if that is None."""
    if best_us is None:
        return None if run_us else evaluator
    if run_us and is_known_slower(run_us, best_us, behind):
        return None
    total_ms, runs = evaluator.repeat * evaluator.min_repeat_ms, evaluator.repeat * evaluator.number
    count = min(max(SLICES, evaluator.repeat), total_ms // SHORTEST_MS)
    if count < max(2, evaluator.repeat):
        return None if run_us else evaluator
    slice_ms, number = ceil(total_ms / count), ceil(runs / count)
    make: Callable[..., T] = type(evaluator)
    probe = make(number=number, repeat=1, min_repeat_ms=slice_ms)
    if not run_us:
        return probe
    if number >= FEWEST_RUNS or slice_ms * 1e3 >= FEWEST_RUNS * run_us[0]:
        return probe if len(run_us) < count else None
    # Long runs: a few slices, which may be single runs, then the rest in as few as the limits allow.
    if len(run_us) > PROBES:
        return None
    counts = [max(probe.number, ceil(probe.min_repeat_ms * 1e3 / max(each_us, 1e-3))) for each_us in run_us]
    spent_ms = sum(number * each_us for number, each_us in zip(counts, run_us, strict=True)) / 1e3
    left_runs, left_ms = runs - sum(counts), ceil(total_ms - spent_ms)
    if left_runs <= 0 and left_ms <= 0:
        return None
    if len(run_us) < PROBES:
        return probe
    left_runs, left_ms = max(1, left_runs), max(0, left_ms)
    repeat = max(1, ceil(left_runs / MOST_RUNS), ceil(left_ms / LONGEST_MS))
    number, slice_ms = ceil(left_runs / repeat), ceil(left_ms / repeat)
    return make(number=number, repeat=repeat, min_repeat_ms=slice_ms)


if TYPE_CHECKING:  # batches take this module along, without pydantic
    from mallorn.core.job_options import EvaluatorOptions


class Adaptive(StoppingRule):
    """Times a candidate in slices (short series of runs), until they make up the timing that
    the job asks for, or until the 95 % confidence interval of the mean is narrow and above
    the task's best time. Without a best time, the job's timing options apply unchanged."""

    behind: ClassVar[float | None] = None

    def next_timing(
        self, evaluator: "EvaluatorOptions", run_us: Sequence[float], best_us: float | None = None
    ) -> "EvaluatorOptions | None":
        return next_slice_options(evaluator, run_us, best_us, self.behind)


class Racing(Adaptive):
    """Like `adaptive`, but also stops if even a wide confidence interval is far above the
    best time: 10 % error in a hopeless candidate's time does a cost model no harm."""

    behind = BEHIND
