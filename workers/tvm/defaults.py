"""Sane decisions without any search: how an engineer would tile by hand.

A CPU keeps a tile of the result in vector registers (a few rows of one or two vectors of the last axis), sums
a few reduction steps into it, and hands the outermost loops to its cores. A GPU gives each thread a small
tile.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from workers.search.space import Choice, ChoiceKind, Sketch
from workers.search.tiles import divisors

_ACCUMULATORS = 16
_MAX_ROWS = 8
_CHUNKS_PER_CORE = 4
_MAX_CHUNKS_PER_CORE = 16  # beyond this MetaSchedule does not parallelise
_GPU_THREADS = 16  # along each of the two last axes


class Location(StrEnum):
    """Where a block is computed that feeds another one."""

    ROOT = "root"  # all of it beforehand
    OUTER = "outer"  # inside the outermost loop, for which it is still computed once
    INNER = "inner"  # as late as can be: good for one cheap block such as padding, ruinous for a chain


@dataclass(frozen=True, slots=True)
class Machine:
    """What the heuristics know of a target."""

    cores: int
    lanes: int  # 32-bit numbers in a vector register
    gpu: bool = False


@dataclass(frozen=True, slots=True)
class Pattern:
    """One way to fill in the choices that the machine leaves open."""

    rows_level: int = 2  # tile level of the register rows: outside the inner reduction (2) or inside it (3)
    reduction: int = 4  # innermost reduction steps
    unroll: int = 64
    location: Location = Location.OUTER


PATTERNS = (
    Pattern(),
    Pattern(rows_level=3, reduction=16, location=Location.ROOT),
    Pattern(reduction=16, location=Location.INNER),
    Pattern(rows_level=3, reduction=1, unroll=16),
)


def default_decisions(sketch: Sketch, machine: Machine, pattern: Pattern) -> tuple[int, ...]:
    """The decision vector of a sketch by one pattern."""
    tiles = iter(_tiles(sketch, machine, pattern))
    chained = sum(choice.kind is ChoiceKind.LOCATION for choice in sketch.choices) > 1
    location = Location.OUTER if chained and pattern.location is Location.INNER else pattern.location
    vector: list[int] = []
    for choice in sketch.choices:
        match choice.kind:
            case ChoiceKind.TILE:
                vector += choice.suggested or next(tiles)
            case ChoiceKind.CATEGORICAL:
                labels = choice.labels or choice.values
                vector.append(min(choice.values, key=lambda value: abs(labels[value] - pattern.unroll)))
            case ChoiceKind.LOCATION:
                vector.append(_location(choice.values, location))
    return tuple(vector)


def _tiles(sketch: Sketch, machine: Machine, pattern: Pattern) -> Iterator[list[int]]:
    """The factors of each tile choice, in order."""
    choices = [choice for choice in sketch.choices if choice.kind is ChoiceKind.TILE and not choice.suggested]
    while choices:
        group = _next_group(choices)
        choices = choices[len(group) :]
        spatial = [choice for choice in group if choice.width == group[0].width]
        reduction = group[len(spatial) :]
        if group[0].width < 4:  # a reduction split in two so that its inner part can be vectorised
            yield from (
                [c.extent // f, f] for c in spatial for f in [largest_factor(c.extent, 2 * machine.lanes)]
            )
        elif machine.gpu:
            yield from _gpu_spatial(spatial)
            yield from _reduction(reduction, pattern.reduction)
        else:
            yield from _cpu_spatial(spatial, machine, pattern)
            yield from _reduction(reduction, pattern.reduction)


def _next_group(choices: Sequence[Choice]) -> list[Choice]:
    """The tiles of one block: its spatial axes, then its reductions, which have fewer levels."""
    widths = [choice.width for choice in choices]
    start = next((i for i, width in enumerate(widths) if width != widths[0]), len(widths))
    end = next((i for i in range(start, len(widths)) if widths[i] == widths[0]), len(widths))
    return list(choices[: end if widths[0] >= 4 else start])


def _cpu_spatial(axes: Sequence[Choice], machine: Machine, pattern: Pattern) -> list[list[int]]:
    tiles = [[1] * axis.width for axis in axes]
    left = [axis.extent for axis in axes]

    def give(axis: int, level: int, factor: int) -> None:
        tiles[axis][level] *= factor
        left[axis] //= factor

    last = max((i for i, axis in enumerate(axes) if axis.extent > 1), default=0)
    vector = _vector(axes[last].extent, machine.lanes)
    give(last, 3, vector)
    rows = min(_MAX_ROWS, max(1, _ACCUMULATORS // -(-vector // machine.lanes)))
    if last > 0:
        # The axis that offers most rows, of equals the nearest to the vector.
        axis = max(range(last), key=lambda i: (largest_factor(left[i], rows), i))
        give(axis, pattern.rows_level, largest_factor(left[axis], rows))
    chunks = 1
    for axis in range(len(axes)):
        if chunks < _CHUNKS_PER_CORE * machine.cores:
            factor = largest_factor(left[axis], max(1, _MAX_CHUNKS_PER_CORE * machine.cores // chunks))
            give(axis, 0, factor)
            chunks *= factor
        give(axis, 1, left[axis])
    return tiles


def _gpu_spatial(axes: Sequence[Choice]) -> list[list[int]]:
    """Block, virtual thread, thread and two inner levels: 16 by 16 threads of 2 by 2 results each."""
    tiles = [[axis.extent] + [1] * (axis.width - 1) for axis in axes]
    widest = sorted(range(len(axes)), key=lambda i: (axes[i].extent > 1, i))[-2:]
    for axis in widest:
        threads = largest_factor(axes[axis].extent, _GPU_THREADS)
        inner = largest_factor(axes[axis].extent // threads, 2)
        tiles[axis][0] //= threads * inner
        tiles[axis][2], tiles[axis][-1] = threads, inner
    return tiles


def _reduction(axes: Sequence[Choice], steps: int) -> list[list[int]]:
    """Innermost axis first: a few steps stay beside the registers, all others outside."""
    tiles: list[list[int]] = []
    for axis in reversed(axes):
        inner = largest_factor(axis.extent, steps)
        tiles.append([axis.extent // inner] + [1] * (axis.width - 2) + [inner])
        steps //= inner
    return tiles[::-1]


@lru_cache(maxsize=1024)
def _vector(extent: int, lanes: int) -> int:
    """Innermost factor: fills whole vectors, two of them if it can."""

    def worth(factor: int) -> tuple[float, int, int]:
        vectors = -(-factor // lanes)
        return round(factor / (vectors * lanes), 1), -abs(vectors - 2), factor

    return max((d for d in divisors(extent) if d <= min(4 * lanes, 64)), key=worth)


def _location(values: Sequence[int], wanted: Location) -> int:
    if wanted is Location.INNER:
        return values[-1]
    beginning = [value for value in values if value >= 0] if wanted is Location.OUTER else [-1]
    return min(set(beginning) & set(values), default=values[0])


def largest_factor(extent: int, limit: int) -> int:
    """The largest divisor that is at most `limit`, and at least one."""
    return max(factor for factor in divisors(extent) if factor <= max(1, limit))
