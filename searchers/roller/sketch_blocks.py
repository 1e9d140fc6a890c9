"""What the choices of a sketch are about: which tiles are of one block, where its result goes to."""

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
    """A choice, and where its numbers begin in the decision vector."""

    start: int
    choice: Choice

    @property
    def columns(self) -> slice:
        return slice(self.start, self.start + self.choice.width)


@dataclass(frozen=True, slots=True)
class Block:
    """The tiles of one block: of its spatial axes, and of its reductions, which have fewer levels."""

    spatial: tuple[PlacedChoice, ...]
    reduced: tuple[PlacedChoice, ...]

    @property
    def tiled(self) -> bool:
        """Whether it is cut for registers, caches and cores; otherwise a reduction is cut in two."""
        spatial, reduced = ({place.choice.width for place in of} for of in (self.spatial, self.reduced))
        return spatial == {SPATIAL_LEVELS} and reduced <= {REDUCTION_LEVELS}

    @property
    def places(self) -> tuple[PlacedChoice, ...]:
        return (*self.spatial, *self.reduced)

    def nest(self, nests: Sequence[Nest]) -> Nest:
        """The block's loops; those of a product where no block of the program has such tiles.

        What an instruction computes at once has no tiles: its loops are of whole instructions.
        """
        spatial = tuple(place.choice.extent for place in self.spatial)
        reduced = tuple(place.choice.extent for place in self.reduced)
        known = (folded(nest, (*spatial, *reduced)) for nest in reversed(nests))
        return next((nest for nest in known if nest), None) or product(spatial, reduced)


@lru_cache(maxsize=1024)
def places(sketch: Sketch) -> tuple[PlacedChoice, ...]:
    """All choices in order."""
    return tuple(PlacedChoice(columns.start, choice) for columns, choice in sketch.places)


def blocks(sketch: Sketch) -> list[Block]:
    """The blocks whose tiles are free; what a rule suggested is left as it is."""
    left = [p for p in places(sketch) if p.choice.kind is ChoiceKind.TILE and not p.choice.suggested]
    found: list[Block] = []
    while left:
        spatial, reduced = _first(left)
        found.append(Block(spatial, reduced))
        left = left[len(spatial) + len(reduced) :]
    return found


def _first(left: Sequence[PlacedChoice]) -> tuple[tuple[PlacedChoice, ...], tuple[PlacedChoice, ...]]:
    """The first block's tiles: those with as many levels as the first, then its reductions with fewer."""
    levels = left[0].choice.width
    spatial = tuple(takewhile(lambda place: place.choice.width == levels, left))
    if levels < SPATIAL_LEVELS:
        return spatial, ()
    return spatial, tuple(takewhile(lambda place: place.choice.width < levels, left[len(spatial) :]))


@lru_cache(maxsize=1024)
def home(sketch: Sketch) -> int | None:
    """How many loops lie around what takes a block's result: None where that is a pass of its own."""
    order: list[str] = []
    for name, inputs, *_ in json.loads(sketch.trace or "[]"):
        if name == "Reorder":
            order = inputs
        elif name == "ReverseComputeAt" and inputs[1] in order:
            return order.index(inputs[1]) + 1
    return None
