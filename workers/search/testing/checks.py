"""Checks of a single candidate."""
# ruff: noqa: S101

import math
from collections.abc import Sequence

import numpy as np

from workers.search.space import Candidate, ChoiceKind, Sketch, Space

SEEDS = (0, 1, 2)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def split(sketch: Sketch, decisions: Sequence[int]) -> list[tuple[int, ...]]:
    """The decisions of each choice of a sketch."""
    parts, start = [], 0
    for choice in sketch.choices:
        parts.append(tuple(decisions[start : start + choice.width]))
        start += choice.width
    return parts


def assert_well_formed(space: Space, candidate: Candidate) -> None:
    """Factors multiply up and stay within limits, values are among the allowed ones, all are plain ints."""
    sketch = space.by_key[candidate.sketch]
    assert len(candidate.decisions) == sketch.width
    assert all(type(value) is int for value in candidate.decisions)
    for choice, part in zip(sketch.choices, split(sketch, candidate.decisions), strict=True):
        if choice.kind is ChoiceKind.TILE:
            assert math.prod(part) == choice.extent
            assert all(factor > 0 for factor in part)
            assert not choice.limit or part[-1] <= choice.limit
        else:
            assert part[0] in choice.values
