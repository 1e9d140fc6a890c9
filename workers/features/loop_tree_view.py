"""The view `loops`: the loop tree of a candidate in preorder, as a padded table.

Loops of one iteration are removed, as compilers do. Candidates of a sketch with equal compute
locations have the same tree and differ in its numbers only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from costmodels.views import LOOPS
from searchers.space import ChoiceKind, Matrix, Sketch
from searchers.tile_factorizations import Rows
from workers.features.base import Extractor
from workers.features.resolved_trace import steps_of
from workers.features.trace_follower import AxisKind, Follower, Loop, TracedBlock, TracedNest

LINES, COLUMNS = LOOPS.shape
(PRESENT, PARENT, ROOT, SPATIAL, REDUCTION, BLOCK, EXTENT, REACH, LEVEL, AXIS) = range(10)
(PARALLEL, VECTOR, UNROLL, ORDINAL, TILED, INLINED, STAGE, DEPTH, FLOPS, LANES) = range(10, 20)
MOST_LANES: Final = 64

Numbers = NDArray[np.float64]  # one row per candidate, one column per line of the tree
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Line:
    """A node of the tree: the root, a loop, or a block. `alone`: it has no siblings."""

    parent: int  # index of the parent's line; -1 at the root
    alone: bool = True
    loop: Loop | None = None
    block: TracedBlock | None = None
    ordinal: int = 0


@dataclass(slots=True)
class _Node:
    loop: Loop | None = None
    block: TracedBlock | None = None
    ordinal: int = 0
    children: list["_Node"] = field(default_factory=list)


def lines_of(nest: TracedNest) -> list[Line]:
    """Return the nodes of a nest in preorder; inlined blocks are children of the root."""
    root = _Node()
    for ordinal, block in enumerate(nest.blocks):
        node = root
        for loop in () if block.inlined else block.path:
            shared = next((child for child in node.children if child.loop is loop), None)
            if shared is None:
                shared = _Node(loop)
                node.children.append(shared)
            node = shared
        node.children.append(_Node(block=block, ordinal=ordinal))
    lines = [Line(-1)]
    _append_below(root, 0, lines)
    return lines


def _append_below(node: _Node, parent: int, lines: list[Line]) -> None:
    for child in node.children:
        lines.append(Line(parent, len(node.children) == 1, child.loop, child.block, child.ordinal))
        _append_below(child, len(lines) - 1, lines)


class LoopsView(Extractor):
    """Extracts one line per node: the root, the loops, and a leaf for each block."""

    view = LOOPS

    def describe(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        columns = _locations(sketch)
        matrix = np.zeros((len(rows), LOOPS.width), dtype=np.float32)
        depths, group = np.unique(rows[:, columns], axis=0, return_inverse=True)
        for number, locations in enumerate(depths.tolist()):
            lines = np.flatnonzero(group.reshape(-1) == number)
            matrix[lines] = _describe(sketch, tuple(descriptors), tuple(locations), rows[lines])
        return matrix


def _locations(sketch: Sketch) -> list[int]:
    return [columns.start for columns, choice in sketch.places if choice.kind is ChoiceKind.LOCATION]


@lru_cache(maxsize=1024)
def _nest(sketch: Sketch, descriptors: tuple[float, ...], depths: tuple[int, ...]) -> TracedNest:
    extents = [float(np.rint(2**value - 1)) for value in descriptors[1:]]
    return Follower(extents, dict(zip(_locations(sketch), depths, strict=True))).follow(steps_of(sketch))


def _describe(sketch: Sketch, descriptors: tuple[float, ...], depths: tuple[int, ...], rows: Rows) -> Matrix:
    nest = _nest(sketch, descriptors, depths)
    lines = lines_of(nest)
    table = np.zeros((len(rows), len(lines), COLUMNS))
    table[:, :, PRESENT] = 1
    for index, line in enumerate(lines):
        _fill(table[:, index], line, rows)
    table[:, 0, FLOPS] = descriptors[0] if descriptors else 0.0
    table[:, 0, UNROLL] = np.log2(1 + nest.unroll.of(rows))
    table[:, :, REACH] = table[:, :, EXTENT]
    for index, line in enumerate(lines[1:], start=1):
        table[:, index, REACH] += table[:, line.parent, REACH]
    table[:, :, PARALLEL] = _parallel(lines, table[:, :, REACH], np.log2(nest.parallel.of(rows)))
    table[:, :, VECTOR] = _vector(lines, table[:, :, EXTENT], np.log2(nest.vector.of(rows)))
    return _compact(lines, table)


def _fill(column: Numbers, line: Line, rows: Rows) -> None:
    """Fill the columns that depend on this line only."""
    if line.loop is not None:
        extent = np.prod([np.maximum(factor.of(rows), 1) for factor in line.loop.factors], axis=0)
        column[:, REDUCTION if line.loop.kind is AxisKind.REDUCTION else SPATIAL] = 1
        column[:, EXTENT] = np.log2(extent)
        column[:, LANES] = np.log2(np.gcd(extent.astype(np.int64), MOST_LANES))
        column[:, [LEVEL, AXIS]] = line.loop.level, line.loop.axis
    elif line.block is not None:
        block = line.block
        column[:, [BLOCK, ORDINAL, DEPTH]] = 1, line.ordinal, block.depth
        column[:, [TILED, INLINED, STAGE]] = bool(block.structure), block.inlined, block.stage
    else:
        column[:, ROOT] = 1


def _parallel(lines: Sequence[Line], reach: Numbers, limit: Numbers) -> Flags:
    """Flag the outermost spatial loops, up to the limit on parallel iterations."""
    flags = np.zeros(reach.shape, dtype=np.bool_)
    flags[:, 0] = True
    for index, line in enumerate(lines):
        if line.loop is not None and line.loop.kind is AxisKind.SPATIAL and (line.alone or line.parent == 0):
            flags[:, index] = flags[:, line.parent] & (reach[:, index] <= limit)
    flags[:, 0] = False
    return flags


def _vector(lines: Sequence[Line], extents: Numbers, limit: Numbers) -> Flags:
    """Flag the innermost spatial loops around a single block, up to the limit on vectors."""
    flags = np.zeros(extents.shape, dtype=np.bool_)
    for line in lines:
        fits, total, node = np.ones(len(extents), dtype=np.bool_), np.zeros(len(extents)), line
        while line.block is not None and node.alone and (loop := lines[node.parent].loop) is not None:
            total = total + extents[:, node.parent]
            fits &= (total <= limit) & (loop.kind is AxisKind.SPATIAL) | (extents[:, node.parent] == 0)
            flags[:, node.parent] |= fits
            node = lines[node.parent]
    return flags


def _compact(lines: Sequence[Line], table: Numbers) -> Matrix:
    """Remove loops of one iteration; their children move to the nearest remaining ancestor."""
    loops = np.array([line.loop is not None for line in lines])
    remains = ~loops | (table[:, :, EXTENT] > 0)
    new_index = np.cumsum(remains, axis=1) - 1
    nearest = new_index.copy()
    table[:, 0, PARENT] = -1
    for index, line in enumerate(lines[1:], start=1):
        nearest[:, index] = np.where(remains[:, index], new_index[:, index], nearest[:, line.parent])
        table[:, index, PARENT] = nearest[:, line.parent]
    row, column = np.nonzero(remains & (new_index < LINES))
    packed = np.zeros((len(table), LINES, COLUMNS), dtype=np.float32)
    packed[row, new_index[row, column]] = table[row, column]
    return packed.reshape(len(table), -1)
