"""A task's rounds as points of its learning curve. A point is the best latency within one
round, as the best so far often does not change."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf, log
from statistics import NormalDist
from typing import Final

from mallorn.services.planner.planner_values import Point

STANDARD_SIZE: Final = 16  # the size that curves refer to; others are converted by `draws_shift`
WARM_TRIALS: Final = 64  # trials assumed behind a best known from elsewhere
# The spread of a round's candidates in log latency: the value of more draws in a round.
BATCH_SPREAD: Final = 0.06
NOISE: Final = 0.01  # how much two measurements of one program may differ
MEMO: Final = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A task's rounds with a valid result; compared by identity, so hashing is cheap."""

    before: tuple[float, ...]  # trials measured before each round
    log_us: tuple[float, ...]  # each round's best, converted to the standard size
    ahead: float  # trials measured before the next round
    drought: float  # standard rounds since the last gain larger than noise


def round_size_log_shift(size: int) -> float:
    """Return by how much a round of `size` candidates beats one of STANDARD_SIZE (log)."""
    return BATCH_SPREAD * (_expected_normal_maximum(size) - _expected_normal_maximum(STANDARD_SIZE))


@lru_cache(maxsize=1024)
def _expected_normal_maximum(size: int) -> float:
    """Return minus the expected minimum of `size` standard normals (Blom's approximation)."""
    return NormalDist().inv_cdf((size - 0.375) / (size + 0.25))


@lru_cache(maxsize=MEMO)
def curve_of(points: tuple[Point, ...], known_us: float | None) -> Curve | None:
    """Return a task's learning curve; None without a valid result and `known_us`."""
    first = 0.0  # trials before the first point; the size of a first round is unknown
    if known_us is not None:
        first = float(max(0, points[0].trials - STANDARD_SIZE) if points else WARM_TRIALS)
    pairs = [(first, log(known_us))] if known_us else []
    trials = (first, *(float(point.trials) for point in points))
    for (start, end), point in zip(pairwise(trials), points, strict=True):
        if point.best_us is not None:
            pairs.append((start, log(point.best_us) + round_size_log_shift(max(1, round(end - start)))))
    if not pairs:
        return None
    drought = (trials[-1] - last_gain(points, known_us, first)) / STANDARD_SIZE
    return Curve(tuple(n for n, _ in pairs), tuple(z for _, z in pairs), trials[-1], drought)


def last_gain(points: Sequence[Point], known_us: float | None, first: float) -> float:
    """Return after how many trials the best last fell by more than noise, or `first`."""
    best, last = known_us or inf, first
    for point in points:
        if point.best_us is not None and point.best_us < best * (1 - NOISE):
            best, last = point.best_us, float(point.trials)
    return last
