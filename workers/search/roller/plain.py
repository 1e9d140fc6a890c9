"""Decisions about what the constructor has no model of: other sketches, GPUs, how a reduction is cut."""

from collections.abc import Sequence

from mallorn.core.values.machine import Machine
from workers.search.roller.parts import Block, PlacedChoice
from workers.search.tiles import largest_factor

_GPU_THREADS = 16  # along each of the two last axes


def cut_reduction(block: Block, machine: Machine) -> list[list[int]]:
    """So that the inner part fills vectors."""
    return [_innermost(place, 2 * machine.lanes) for place in block.places]


def gpu_tiles(block: Block, steps: int) -> list[list[int]]:
    """Block, virtual thread, thread and two inner levels: 16 by 16 threads of 2 by 2 results each."""
    extents = [place.choice.extent for place in block.spatial]
    tiles = [
        [extent] + [1] * (place.choice.width - 1)
        for place, extent in zip(block.spatial, extents, strict=True)
    ]
    widest = sorted(range(len(extents)), key=lambda at: (extents[at] > 1, at))[-2:]
    for at in widest:
        threads = largest_factor(extents[at], _GPU_THREADS)
        inner = largest_factor(extents[at] // threads, 2)
        tiles[at][0] //= threads * inner
        tiles[at][2], tiles[at][-1] = threads, inner
    return tiles + _depth(block.reduced, steps)


def _depth(places: Sequence[PlacedChoice], steps: int) -> list[list[int]]:
    """Innermost axis first: a few steps stay beside the registers, all others outside."""
    tiles: list[list[int]] = []
    for place in reversed(places):
        tiles.append(_innermost(place, steps))
        steps //= tiles[-1][-1]
    return tiles[::-1]


def _innermost(place: PlacedChoice, limit: int) -> list[int]:
    """Up to a limit in the innermost level, the rest in the outermost."""
    inner = largest_factor(place.choice.extent, limit)
    return [place.choice.extent // inner] + [1] * (place.choice.width - 2) + [inner]
