"""Which sizes of a range are tuned: few, spread so that no size between is far below the next."""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from math import log, prod
from typing import Final

# So many schedules a task has at most.
MOST_POINTS: Final = 8
# What is divided needs sizes that add up, what is filled up needs one close above.
DIVIDED: Final = 0.4
# Sizes from here on are whole vectors.
VECTORS_FROM: Final = 16
STEP: Final = 8
Ranges = Mapping[str, Sequence[int]]  # the least and the largest of each dimension


def points_of(
    ranges: Ranges, exact: Collection[str] = (), divided: Collection[str] = ()
) -> list[dict[str, int]]:
    """The sizes to tune, the largest last. Of dimensions that are `exact` every size is tuned.

    Raises ValueError where these alone are more than the points.
    """
    counts = {name: _count(bounds) if name in exact else 1 for name, bounds in ranges.items()}
    if prod(counts.values()) > MOST_POINTS:
        raise ValueError(f"{prod(counts.values())} sizes, and at most {MOST_POINTS} are tuned")
    while growing := [name for name in ranges if _may_grow(name, counts, ranges)]:
        counts[max(growing, key=lambda name: _gap(name, counts, ranges, divided))] += 1
    axes = [sizes_of(low, high, counts[name]) for name, (low, high) in ranges.items()]
    return [dict(zip(ranges, sizes, strict=True)) for sizes in product(*axes)]


def sizes_of(low: int, high: int, count: int) -> list[int]:
    """At most so many sizes in equal ratios, the least and the largest among them; one: the largest."""
    if count >= high - low + 1:
        return list(range(low, high + 1))
    ratios = [(high / low) ** (place / (count - 1)) for place in range(count - 1)] if count > 1 else []
    return sorted({*(low if ratio == 1 else _whole(low * ratio, high) for ratio in ratios), high})


def _whole(size: float, high: int) -> int:
    step = STEP if size >= VECTORS_FROM else 1
    return min(high, round(size / step) * step)


def _count(bounds: Sequence[int]) -> int:
    return bounds[1] - bounds[0] + 1


def _may_grow(name: str, counts: Mapping[str, int], ranges: Ranges) -> bool:
    others = prod(counts.values()) // counts[name]
    return counts[name] < _count(ranges[name]) and others * (counts[name] + 1) <= MOST_POINTS


def _gap(name: str, counts: Mapping[str, int], ranges: Ranges, divided: Collection[str]) -> float:
    low, high = ranges[name]
    return log(high / low) / counts[name] * (DIVIDED if name in divided else 1.0)
