"""Sizes of a range to time, and the points that a library computes for each."""

from collections.abc import Mapping
from math import prod
from typing import Final

from mallorn.core.values.dynamic_shapes import Dynamic

Sizes = dict[str, int]
MOST_PARTS: Final = 10_000


def spread(ranges: Mapping[str, list[int]], count: int) -> list[Sizes]:
    """Return up to `count` sizes in equal steps from the smallest to the largest."""
    steps = max(1, count - 1)
    points = [
        {name: low + round((high - low) * step / steps) for name, (low, high) in ranges.items()}
        for step in range(steps + 1)
    ]
    return [sizes for place, sizes in enumerate(points) if sizes not in points[:place]]


def computed(dynamic: Dynamic, sizes: Sizes) -> list[Sizes]:
    """Return the points that the rules run in turn for these sizes. Raises ValueError."""
    parts, rest = list[Sizes](), dict(sizes)
    while len(parts) < MOST_PARTS:
        rule = next(
            (each for each in dynamic.rules if all(rest[name] <= limit for name, limit in each.upto.items())),
            None,
        )
        if rule is None:
            raise ValueError(f"no rule covers {rest}")
        point = dynamic.points[rule.point]
        parts.append(point)
        if not rule.first:
            return parts
        rest[rule.first] -= point[rule.first]
    raise ValueError(f"{sizes} would take more than {MOST_PARTS} parts")


def filled_up(points: list[Sizes], sizes: Sizes) -> float:
    """Return the share of the computed elements that is padding."""
    total = sum(prod(point.values()) for point in points)
    return 1 - prod(sizes[name] for name in points[0]) / total
