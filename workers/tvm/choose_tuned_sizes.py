"""Choose the sizes of a range to tune: few, but no size is far below the next tuned one."""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from math import log, prod
from typing import Final

# Most tuned sizes, and so most schedules of a task.
MOST_POINTS: Final = 8
# Weight of gaps between sizes that may be split: padding needs a tuned size close above.
DIVIDED: Final = 0.4
# Sizes from here on are multiples of STEP.
VECTORS_FROM: Final = 16
STEP: Final = 8
Ranges = Mapping[str, Sequence[int]]  # least and largest size of each dimension


def points_of(
    ranges: Ranges, exact: Collection[str] = (), divided: Collection[str] = ()
) -> list[dict[str, int]]:
    """Return the sizes to tune, the largest last, with every size of dimensions in `exact`.

    Raises ValueError if the latter alone are more than MOST_POINTS.
    """
    counts = {name: _count(bounds) if name in exact else 1 for name, bounds in ranges.items()}
    if prod(counts.values()) > MOST_POINTS:
        raise ValueError(f"{prod(counts.values())} sizes, and at most {MOST_POINTS} are tuned")
    while growing := [name for name in ranges if _may_grow(name, counts, ranges)]:
        counts[max(growing, key=lambda name: _gap(name, counts, ranges, divided))] += 1
    axes = [sizes_of(low, high, counts[name]) for name, (low, high) in ranges.items()]
    return [dict(zip(ranges, sizes, strict=True)) for sizes in product(*axes)]


def sizes_of(low: int, high: int, count: int) -> list[int]:
    """Return at most `count` sizes in equal ratios from `low` to `high`; for 1 only `high`."""
    if count >= high - low + 1:
        return list(range(low, high + 1))
    ratios = [(high / low) ** (index / (count - 1)) for index in range(count - 1)] if count > 1 else []
    return sorted({*(low if ratio == 1 else _rounded(low * ratio, high) for ratio in ratios), high})


def _rounded(size: float, high: int) -> int:
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
