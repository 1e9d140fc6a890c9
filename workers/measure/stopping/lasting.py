"""One timing as the evaluator asks for it, that never starts over.

TVM guesses how many runs last `min_repeat_ms` and, where the guess falls short, throws the timing away and
takes a longer one; where the first runs were slow, it takes one much too long. Here a timing is taken in
pieces: each is as long as the pieces before say is missing, and all of them count.
"""

from collections.abc import Callable
from math import ceil
from typing import Final

from mallorn.core.options import EvaluatorOptions

# Mean seconds a run, of so many runs back to back.
TimeRuns = Callable[[int], float]

# The share of a timing that trusts the rough idea; the rest is cut to what this piece found.
FIRST_SHARE: Final = 0.5
MARGIN: Final = 1.02
# A piece has at most so many times the runs of the one before: a clock may say that nothing took no time.
GROWTH: Final = 100


def take_timing(options: EvaluatorOptions, rough_sec: float, time_runs: TimeRuns) -> list[float]:
    """`repeat` means in seconds, each of at least `number` runs that last `min_repeat_ms` together."""
    return [_mean(options, rough_sec, time_runs) for _ in range(options.repeat)]


def _mean(options: EvaluatorOptions, rough_sec: float, time_runs: TimeRuns) -> float:
    wanted_sec = options.min_repeat_ms / 1e3
    number = max(options.number, _runs(wanted_sec * FIRST_SHARE, rough_sec, GROWTH**3))
    runs, total_sec = number, number * time_runs(number)
    while total_sec < wanted_sec:
        number = _runs((wanted_sec - total_sec) * MARGIN, total_sec / runs, number * GROWTH)
        runs, total_sec = runs + number, total_sec + number * time_runs(number)
    return total_sec / runs


def _runs(seconds: float, each_sec: float, most: int) -> int:
    return min(most, ceil(seconds / max(each_sec, 1e-10)))
