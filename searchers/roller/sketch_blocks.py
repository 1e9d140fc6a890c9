"""Find the blocks of a sketch: the tile choices of each block, and where its result goes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from searchers.loop_nest import Nest, folded, product
from searchers.space import Choice, ChoiceKind, Sketch

SPATIAL_LEVELS, REDUCTION_LEVELS = 4, 2


@dataclass(frozen=True, slots=True)
class PlacedChoice:
    """A choice, and its first column in the decision vector."""

    start: int
    choice: Choice

    @property
    def columns(self) -> slice:
        return slice(self.start, self.start + self.choice.width)


@dataclass(frozen=True, slots=True)
class Block:
    """The tile choices of one block: spatial axes, and reductions, which have fewer levels."""

    spatial: tuple[PlacedChoice, ...]
    reduced: tuple[PlacedChoice, ...]

    @property
    def tiled(self) -> bool:
        """Whether it has the multi-level tiling for registers, caches and cores."""
        spatial, reductions = (
            {place.choice.width for place in group} for group in (self.spatial, self.reduced)
        )
        return spatial == {SPATIAL_LEVELS} and reductions <= {REDUCTION_LEVELS}

    @property
    def places(self) -> tuple[PlacedChoice, ...]:
        return (*self.spatial, *self.reduced)

    def nest(self, nests: Sequence[Nest]) -> Nest:
        """Return the block's loops; a matrix product's if no block of the program matches.

        For tensorized blocks, the loops count entire instructions (`folded`).
        """
        spatial = tuple(place.choice.extent for place in self.spatial)
        reductions = tuple(place.choice.extent for place in self.reduced)
        matches = (folded(nest, (*spatial, *reductions)) for nest in reversed(nests))
        return next((nest for nest in matches if nest), None) or product(spatial, reductions)


@lru_cache(maxsize=1024)
def places(sketch: Sketch) -> tuple[PlacedChoice, ...]:
    """Return all choices of a sketch, in order."""
    return tuple(PlacedChoice(columns.start, choice) for columns, choice in sketch.places)


def blocks(sketch: Sketch) -> list[Block]:
    """Return the blocks with free tiles; tiles with a suggested value are not included."""
    remaining = [p for p in places(sketch) if p.choice.kind is ChoiceKind.TILE and not p.choice.suggested]
    found_blocks: list[Block] = []
    while remaining:
        spatial, reductions = _first(remaining)
        found_blocks.append(Block(spatial, reductions))
        remaining = remaining[len(spatial) + len(reductions) :]
    return found_blocks


def _first(remaining: Sequence[PlacedChoice]) -> tuple[tuple[PlacedChoice, ...], tuple[PlacedChoice, ...]]:
    """Return the first block's tiles: spatial ones (as many levels as the first), reductions."""
    levels = remaining[0].choice.width
    spatial = tuple(takewhile(lambda place: place.choice.width == levels, remaining))
    if levels < SPATIAL_LEVELS:
        return spatial, ()
    return spatial, tuple(takewhile(lambda place: place.choice.width < levels, remaining[len(spatial) :]))


@lru_cache(maxsize=1024)
def home(sketch: Sketch) -> int | None:
    """Return the number of loops around the consumer of a block's result; None if unfused."""
    order: list[str] = []
    for name, inputs, *_ in json.loads(sketch.trace or "[]"):
        if name == "Reorder":
            order = inputs
        elif name == "ReverseComputeAt" and inputs[1] in order:
            return order.index(inputs[1]) + 1
    return None
