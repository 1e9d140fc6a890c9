"""Finds the blocks of a sketch: the tile choices of each, and where its result goes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mallorn.searchers.loop_nest import Nest, fold_nest, matrix_product_nest
from mallorn.searchers.space import Choice, ChoiceKind, Sketch

SPATIAL_LEVELS, REDUCTION_LEVELS = 4, 2


@dataclass(frozen=True, slots=True)
class PlacedChoice:
    """A choice, and the first of its columns in the decision vector."""

    start: int
    choice: Choice

    @property
    def columns(self) -> slice:
        return slice(self.start, self.start + self.choice.width)


@dataclass(frozen=True, slots=True)
class Block:
    """The tile choices of one block of a program: of spatial and of reduction axes."""

    spatial: tuple[PlacedChoice, ...]
    reduced: tuple[PlacedChoice, ...]

    @property
    def is_tiled(self) -> bool:
        """Whether the block has the multi-level tiling for registers, caches and cores."""
        spatial, reductions = (
            {place.choice.width for place in group} for group in (self.spatial, self.reduced)
        )
        return spatial == {SPATIAL_LEVELS} and reductions <= {REDUCTION_LEVELS}

    @property
    def tile_choices(self) -> tuple[PlacedChoice, ...]:
        return (*self.spatial, *self.reduced)

    def nest(self, nests: Sequence[Nest]) -> Nest:
        """Return the block's loops, or those of a matrix product if no block of the program
        matches. For tensorized blocks, the loops count entire instructions (see `fold_nest`)."""
        spatial = tuple(place.choice.extent for place in self.spatial)
        reductions = tuple(place.choice.extent for place in self.reduced)
        matches = (fold_nest(nest, (*spatial, *reductions)) for nest in reversed(nests))
        return next((nest for nest in matches if nest), None) or matrix_product_nest(spatial, reductions)


@lru_cache(maxsize=1024)
def placed_choices(sketch: Sketch) -> tuple[PlacedChoice, ...]:
    return tuple(PlacedChoice(columns.start, choice) for columns, choice in sketch.decision_slices)


def blocks(sketch: Sketch) -> list[Block]:
    """Return the sketch's blocks with free tiles, without tiles whose value is suggested."""
    remaining = [
        p for p in placed_choices(sketch) if p.choice.kind is ChoiceKind.TILE and not p.choice.suggested
    ]
    found_blocks: list[Block] = []
    while remaining:
        # Spatial tiles have as many levels as the first one, reductions have fewer.
        widths = [place.choice.width for place in remaining]
        spatial_count = next((i for i, width in enumerate(widths) if width != widths[0]), len(widths))
        end = spatial_count
        if widths[0] >= SPATIAL_LEVELS:
            while end < len(widths) and widths[end] < widths[0]:
                end += 1
        found_blocks.append(Block(tuple(remaining[:spatial_count]), tuple(remaining[spatial_count:end])))
        remaining = remaining[end:]
    return found_blocks


@lru_cache(maxsize=1024)
def consumer_depth(sketch: Sketch) -> int | None:
    """Return the number of loops around a consumer fused with its producer, else None."""
    order: list[str] = []
    for name, inputs, *_ in json.loads(sketch.trace or "[]"):
        if name == "Reorder":
            order = inputs
        elif name == "ReverseComputeAt" and inputs[1] in order:
            return order.index(inputs[1]) + 1
    return None
