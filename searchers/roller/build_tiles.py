"""Tiles of a block that fit a machine: the registers first, then what is around them."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.core.values.machine import Machine
from searchers.loop_nest import Nest
from searchers.roller.block_time import computing_us
from searchers.roller.sketch_blocks import Block, PlacedChoice
from searchers.roller.tiled_loops import Loops
from searchers.roller.unrolled_body import registers_of
from searchers.tile_factorizations import Rows, divisors, largest_factor

Table = NDArray[np.int64]

MOST_CHUNKS: Final = 16  # of a core: beyond this MetaSchedule does not parallelise
_MOST_ROWS, _MOST_AGAIN, _DEEPEST = 16, 16, 64  # of a register tile, of tiles beside it, of its sums
_WIDEST: Final = 64  # numbers that MetaSchedule makes vectors of at once
_OVERFULL: Final = 1.2  # times the registers: a few that spill may still be worth it
_KEPT, _MOST_BUILT = 96, 6_000


def build(nest: Nest, machine: Machine, limits: Sequence[int], unroll: float) -> Rows:
    """Tiles of the spatial axes, then of the reductions, a row each. `limits` are of the innermost ones."""
    inner = _registers(nest, machine, limits)
    time = computing_us(Loops(nest, inner), machine, unroll)
    kept = inner[np.argsort(time, kind="stable")[:_KEPT]]
    rows = np.concatenate([_chunks(machine, row, len(limits) - _reductions(nest)) for row in kept])
    return rows if len(rows) <= _MOST_BUILT else rows[:: -(-len(rows) // _MOST_BUILT)]


def _reductions(nest: Nest) -> int:
    return sum(axis.reduced for axis in nest.axes)


def _registers(nest: Nest, machine: Machine, limits: Sequence[int]) -> Rows:
    """Whatever fills vectors and keeps its sums in registers; all else lies in the second level."""
    count = len(nest.axes) - _reductions(nest)
    spatial, reduced = nest.extents[:count], nest.extents[count:]
    rows = [
        _pairs(extent, min(limit, _MOST_ROWS)) for extent, limit in zip(spatial[:-1], limits, strict=False)
    ]
    across = _every([*rows, _vectors(spatial[-1], machine.lanes, limits[count - 1])])
    across = across[_fits(across, machine)]
    depth = _every([_singles(e, limit) for e, limit in zip(reduced, limits[count:], strict=True)])
    depth = depth[depth.prod(axis=(1, 2)) <= _DEEPEST]
    return _rows(spatial, reduced, across, depth)


def _fits(across: Table, machine: Machine) -> NDArray[np.bool_]:
    """Sums within the registers, few tiles beside them, and no more than two axes of rows."""
    width = across[:, -1, 1].astype(np.float64)
    sums = across[:, :-1, 1].prod(axis=1) * registers_of(width, machine.lanes)
    again = across[:, :, 0].prod(axis=1)
    rowed = (across[:, :-1].prod(axis=2) > 1).sum(axis=1)
    return np.asarray((sums <= _OVERFULL * machine.registers) & (again <= _MOST_AGAIN) & (rowed <= 2))


def _rows(spatial: Sequence[int], reduced: Sequence[int], across: Table, depth: Table) -> Rows:
    """Every register tile with every depth, as rows of the tiles of all levels."""
    pairs, steps = (grid.ravel() for grid in np.indices((len(across), len(depth))))
    columns: list[Table] = []
    for at, extent in enumerate(spatial):
        again, inner = across[pairs, at].T
        columns += [np.ones_like(inner), extent // (again * inner), again, inner]
    for at, extent in enumerate(reduced):
        inner = depth[steps, at, 0]
        columns += [extent // inner, inner]
    return np.stack(columns, axis=1).astype(np.int32)


def _chunks(machine: Machine, row: Rows, spatial: int) -> Rows:
    """Every way to cut what is outside the inner levels into chunks for the cores."""
    left = [int(row[4 * at + 1]) for at in range(spatial)]
    cuts = _every([_singles(extent, extent) for extent in left])[:, :, 0]
    chunks = cuts.prod(axis=1)
    good = (chunks <= MOST_CHUNKS * machine.cores) & (chunks >= min(machine.cores, chunks.max()))
    cuts = cuts[good] if good.any() else cuts[[chunks.argmin()]]
    rows = np.repeat(row[None], len(cuts), axis=0)
    rows[:, 0 : 4 * spatial : 4] = cuts
    rows[:, 1 : 4 * spatial : 4] = np.array(left) // cuts
    return rows


def _every(options: Sequence[Table]) -> Table:
    """Every combination of a line of each table: combinations x tables x columns."""
    if not options:
        return np.ones((1, 0, 1), dtype=np.int64)
    grid = np.indices([len(table) for table in options]).reshape(len(options), -1)
    return np.stack([table[at] for table, at in zip(options, grid, strict=True)], axis=1)


def _pairs(extent: int, most: int) -> Table:
    """How often a tile is repeated in the level around it, and its rows."""
    inner = [factor for factor in divisors(extent) if factor <= most]
    return np.array([(again, f) for f in inner for again in divisors(extent // f) if again <= _MOST_AGAIN])


def _vectors(extent: int, lanes: int, limit: int) -> Table:
    """The same of the axis that vectors are made of: those that waste fewest lanes, and halves of vectors."""
    widths = np.array([factor for factor in divisors(extent) if factor <= min(limit, _WIDEST)])
    waste = np.ceil(widths / lanes) * lanes / widths
    good = widths[(waste <= 1.5 * waste.min()) | (2 * widths == lanes)]
    return np.array([(again, f) for f in good.tolist() for again in divisors(extent // f) if again <= 4])


def _singles(extent: int, most: int) -> Table:
    return np.array([(factor,) for factor in divisors(extent) if factor <= most])


def cut_reduction(block: Block, machine: Machine) -> list[list[int]]:
    """So that the inner part fills vectors."""
    return [_innermost(place, 2 * machine.lanes) for place in block.places]


def _innermost(place: PlacedChoice, limit: int) -> list[int]:
    """Up to a limit in the innermost level, the rest in the outermost."""
    inner = largest_factor(place.choice.extent, limit)
    return [place.choice.extent // inner] + [1] * (place.choice.width - 2) + [inner]
