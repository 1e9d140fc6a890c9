"""One long timing in short slices, so that a rule can look in between; together they are the long one."""

from collections.abc import Sequence
from math import ceil
from typing import Final

from mallorn.core.options import EvaluatorOptions

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
    return _of_long_runs(one, run_us, total_ms, runs)


def _of_long_runs(
    one: EvaluatorOptions, run_us: Sequence[float], total_ms: int, runs: int
) -> EvaluatorOptions | None:
    """A few slices, which may be single runs, and the rest in as few as the evaluator's limits allow."""
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
