"""Checks of a candidate, and spaces that are small enough to exhaust."""

# ruff: noqa: S101

import math
from collections.abc import Sequence

import numpy as np

from mallorn.core.values.machine import assumed
from searchers.decision_space import DecisionSpace
from searchers.space import Candidate, Choice, ChoiceKind, Sketch, Space

SEEDS = (0, 1, 2)


def generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def split(sketch: Sketch, decisions: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the decisions of each choice of a sketch."""
    return [tuple(decisions[columns]) for columns, _ in sketch.places]


def assert_well_formed(space: Space, candidate: Candidate) -> None:
    """Assert that factors have the right product and limits, and values are allowed ints."""
    sketch = space.by_key[candidate.sketch]
    assert len(candidate.decisions) == sketch.width
    assert all(type(value) is int for value in candidate.decisions)
    for choice, part in zip(sketch.choices, split(sketch, candidate.decisions), strict=True):
        if choice.kind is ChoiceKind.TILE:
            assert math.prod(part) == choice.extent
            assert all(factor > 0 for factor in part)
            assert not choice.limit or part[-1] <= choice.limit
            place, multiple = choice.inner_multiple or (0, 1)
            assert math.prod(part[place:]) % multiple == 0
        else:
            assert part[0] in choice.values


class TinySpace(DecisionSpace):
    """A space of ten candidates, which are valid if the first factor is odd or the index 1."""

    def __init__(self) -> None:
        choices = (
            Choice(ChoiceKind.TILE, 2, extent=12, limit=6),
            Choice(ChoiceKind.CATEGORICAL, 1, values=(0, 1), labels=(0, 16), weights=(0.5, 0.5)),
        )
        super().__init__([Sketch("tiny", "", choices)], [1.0], assumed(cores=2, lanes=4))

    def everything(self) -> set[Candidate]:
        return {Candidate("tiny", (12 // f, f, i)) for f in (1, 2, 3, 4, 6) for i in (0, 1)}

    def possible(self) -> set[Candidate]:
        return {candidate for candidate in self.everything() if self.valid([candidate])[0]}

    def defaults(self) -> list[Candidate]:
        return [Candidate("tiny", (12, 1, 0)), Candidate("tiny", (3, 4, 0))]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return [c.decisions[0] % 2 == 1 or c.decisions[2] == 1 for c in candidates]


class PartitionedSpace(DecisionSpace):
    """A space of tiles with an `inner_multiple`; every well-formed candidate is valid."""

    def __init__(self) -> None:
        tiles = [Choice(ChoiceKind.TILE, 5, extent, inner_multiple=(3, 4)) for extent in (32, 24)]
        super().__init__([Sketch("partitioned", "", tuple(tiles))], [1.0], assumed(cores=2, lanes=4))

    def defaults(self) -> list[Candidate]:
        return [Candidate("partitioned", (8, 1, 1, 4, 1, 6, 1, 1, 4, 1))]

    def valid(self, candidates: Sequence[Candidate]) -> list[bool]:
        return self.well_formed(candidates)
