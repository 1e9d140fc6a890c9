"""Describe a candidate's loops and blocks as a table: the nodes of a tree in preorder.

These are the features of the view `loops`. Loops of one iteration are removed, as compilers
do. Trees of a sketch's candidates with equal compute locations differ only in numbers.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.views import LOOPS
from mallorn.searchers.space import ChoiceKind, Matrix, Sketch
from mallorn.searchers.tile_factorizations import Rows
from mallorn.workers.features.feature_extractor import Extractor
from mallorn_research.features.resolved_trace import Number, TraceStep, steps_of

LINES, COLUMNS = LOOPS.shape
(PRESENT, PARENT, ROOT, SPATIAL, REDUCTION, BLOCK, EXTENT, REACH, LEVEL, AXIS) = range(10)
(PARALLEL, VECTOR, UNROLL, ORDINAL, TILED, INLINED, STAGE, DEPTH, FLOPS, LANES) = range(10, 20)
MOST_LANES: Final = 64

Numbers = NDArray[np.float64]  # one row per candidate, one column per line of the tree
Flags = NDArray[np.bool_]
INLINED_LOCATION: Final = -2  # the compute location that means inlining
_STRUCTURE: Final = "meta_schedule.tiling_structure"
_LIMITS: Final = {
    "meta_schedule.parallel": "parallel",
    "meta_schedule.vectorize": "vector",
    "meta_schedule.unroll_explicit": "unroll",
}
ONE, NONE = Number(1.0), Number(0.0)


class AxisKind(IntEnum):
    SPATIAL = 0
    REDUCTION = 1


@dataclass(eq=False, slots=True)
class Loop:
    """A loop, shared by the blocks inside it; its extent is the product of `factors`."""

    factors: tuple[Number, ...]
    axis: int = 0  # which axis of its block the loop is a part of, counted from the innermost
    level: int = 0  # which part of that axis, counted from the outermost
    kind: AxisKind = AxisKind.SPATIAL


@dataclass(eq=False, slots=True)
class TracedBlock:
    """A block of the program and the loops around it, outermost first."""

    path: list[Loop] = field(default_factory=list)
    structure: str = ""  # of its tiles, such as SSRSRS; empty if the block is not tiled
    stage: bool = False  # created by the schedule: a cached copy, or a part of a reduction
    inlined: bool = False
    depth: int = 0  # number of another block's loops that the block was moved into


@dataclass(slots=True)
class TracedNest:
    """A program's blocks in order, and limits on parallel, vector and unrolled loops."""

    blocks: list[TracedBlock] = field(default_factory=list)
    parallel: Number = ONE
    vector: Number = ONE
    unroll: Number = NONE

    def neighbour(self, block: TracedBlock, way: int) -> TracedBlock:
        """Return the next (`way` 1) or previous (-1) block not inlined, else `block`."""
        following = self.blocks[self.blocks.index(block) :: way][1:]
        return next((item for item in following if not item.inlined), block)

    def first_block_inside(self, loop: Loop) -> TracedBlock | None:
        return next((block for block in self.blocks if loop in block.path), None)

    def replace(self, loop: Loop, parts: list[Loop]) -> None:
        for block in self.blocks:
            if loop in block.path:
                index = block.path.index(loop)
                block.path[index : index + 1] = parts


class Follower:
    """Follows a trace step by step to find its loops; other steps are ignored.

    `extents` are the loop extents of the main block. `depths` are the sampled compute
    locations by column of the decision vector. A trace does not say which block reads
    which, nor how much of a producer a tile of its consumer needs. So the next block that
    is not inlined is taken as the consumer, and a block that moves into another's loops
    keeps its own inner loops. The error is the same for all candidates.
    """

    def __init__(self, extents: Sequence[float], depths: Mapping[int, int]) -> None:
        self._extents = extents
        self._depths = depths
        self._nest = TracedNest()
        self._blocks: dict[str, TracedBlock] = {}
        self._loops: dict[str, Loop] = {}

    def follow(self, steps: Sequence[TraceStep]) -> TracedNest:
        for step in steps:
            self._apply(step)
        for block in self._nest.blocks:
            self._block_loops(block)
        return self._nest

    def _apply(self, step: TraceStep) -> None:
        nest = self._nest
        match step.kind:
            case "GetSBlock":
                block = self._blocks[step.outputs[0]] = TracedBlock()
                if step.attrs[0] != "root":
                    nest.blocks.append(block)
            case "GetChildBlocks":
                # The root's children, which are all blocks that are not inlined yet.
                # DLight's traces begin with this step, so it may have to create the blocks.
                if not nest.blocks:
                    nest.blocks = [TracedBlock() for _ in step.outputs]
                children = [block for block in nest.blocks if not block.inlined]
                self._blocks |= dict(zip(step.outputs, children, strict=False))
            case "GetLoops":
                block = self._blocks[step.names[0]]
                count = len(step.outputs)
                if len(block.path) != count:
                    block.path = _axes(self._extents if len(self._extents) == count else [1.0] * count)
                self._loops |= dict(zip(step.outputs, block.path, strict=True))
            case "GetConsumers" | "GetProducers":
                way = 1 if step.kind == "GetConsumers" else -1
                neighbour = nest.neighbour(self._blocks[step.names[0]], way)
                self._blocks |= dict.fromkeys(step.outputs, neighbour)
            case "Split":
                loop = self._loops[step.names[0]]
                host = nest.first_block_inside(loop)
                # A missing factor (the text "None"), which TVM infers, counts as 1.
                factors = [value if isinstance(value, Number) else ONE for value in step.inputs[1:]]
                is_summed = host is not None and len(factors) == host.structure.count("R")
                kind = AxisKind.REDUCTION if is_summed else loop.kind
                parts = [Loop((factor,), loop.axis, level, kind) for level, factor in enumerate(factors)]
                nest.replace(loop, parts)
                self._loops |= dict(zip(step.outputs, parts, strict=True))
            case "Fuse":
                loops = [self._loops[name] for name in step.names]
                fused_factors = tuple(factor for loop in loops for factor in loop.factors)
                fused = dataclasses.replace(loops[-1], factors=fused_factors)
                nest.replace(loops[0], [fused])
                for loop in loops[1:]:
                    nest.replace(loop, [])
                self._loops[step.outputs[0]] = fused
            case "Reorder":
                loops = [self._loops[name] for name in step.names]
                for block in nest.blocks:
                    indices = [index for index, loop in enumerate(block.path) if loop in loops]
                    if len(indices) == len(loops):
                        for index, loop in zip(indices, loops, strict=True):
                            block.path[index] = loop
            case "AddUnitLoop":
                loop = self._loops[step.outputs[0]] = Loop((ONE,))
                if step.names[0] in self._blocks:
                    self._blocks[step.names[0]].path.append(loop)
            case "RFactor":
                self._rfactor(step)
            case "DecomposeReduction":
                # The block that initialises the sum has no loops of its own.
                self._blocks[step.outputs[0]] = TracedBlock(stage=True, inlined=True)
            case "ReadAt" | "WriteAt":
                loop, block = self._loops[step.names[0]], self._blocks[step.names[1]]
                depth = block.path.index(loop) + 1 if loop in block.path else 0
                copy = TracedBlock(block.path[:depth], stage=True, depth=depth)
                self._blocks[step.outputs[0]] = copy
                nest.blocks.insert(nest.blocks.index(block) + (step.kind == "WriteAt"), copy)
            case "ReIndex" | "CacheRead" | "CacheWrite":
                is_behind = int(step.attrs[1]) if step.kind == "ReIndex" else step.kind == "CacheWrite"
                copy = self._blocks[step.outputs[0]] = TracedBlock(stage=True)
                nest.blocks.insert(nest.blocks.index(self._blocks[step.names[0]]) + is_behind, copy)
            case "ComputeInline" | "ReverseComputeInline":
                self._blocks[step.names[0]].inlined = True
            case "ComputeAt" | "ReverseComputeAt":
                self._compute_at(step)
            case "Blockize":
                # The inner loops become part of the tensorised block.
                loop = self._loops[step.names[0]]
                if (host := nest.first_block_inside(loop)) is not None:
                    host.path = host.path[: host.path.index(loop)]
                    self._blocks[step.outputs[0]] = host
            case "Annotate":
                key = str(step.attrs[0])
                if key == _STRUCTURE:
                    self._blocks[step.names[0]].structure = step.names[1].strip('"')
                elif key in _LIMITS:
                    setattr(nest, _LIMITS[key], step.numbers[0])

    def _rfactor(self, step: TraceStep) -> None:
        """Insert a block of partial sums along a loop, which the old block adds up."""
        factored = self._loops[step.names[0]]
        block = self._nest.first_block_inside(factored)
        if block is None:
            return
        first = min(int(step.attrs[0]), block.path.index(factored))
        outer, inner = block.path[:first], block.path[first:]
        kinds = [AxisKind.SPATIAL if loop is factored else AxisKind.REDUCTION for loop in inner]
        summed_loops = [dataclasses.replace(loop, kind=kind) for loop, kind in zip(inner, kinds, strict=True)]
        partial_sums = TracedBlock([*map(dataclasses.replace, outer), *summed_loops], stage=True)
        block.path = [*outer, dataclasses.replace(factored, kind=AxisKind.REDUCTION)]
        self._nest.blocks.insert(self._nest.blocks.index(block), partial_sums)
        self._blocks[step.outputs[0]] = partial_sums

    def _compute_at(self, step: TraceStep) -> None:
        block = self._blocks[step.names[0]]
        if step.numbers:
            location = self._depths[step.numbers[0].column or 0]
            depth = location + 1
            host = self._nest.neighbour(block, 1)
            block.inlined = location == INLINED_LOCATION
        else:
            loop = self._loops[step.names[1]]
            host = self._nest.first_block_inside(loop) or block
            depth = host.path.index(loop) + 1
        block.depth = max(0, depth)
        if block.depth and host is not block:
            # Reductions and tiled loops stay; other loops shrink to what the consumer needs.
            block.path = self._block_loops(host)[: block.depth] + [
                loop
                for index, loop in enumerate(self._block_loops(block))
                if index >= block.depth
                or loop.kind is AxisKind.REDUCTION
                or any(factor.column is not None for factor in loop.factors)
            ]

    def _block_loops(self, block: TracedBlock) -> list[Loop]:
        """Return a block's loops, or copies of the main block's if the trace names none."""
        if not block.path and not block.inlined:
            tiled = next((item for item in self._nest.blocks if item.structure), None)
            spatial = {loop.axis for loop in tiled.path if loop.kind is AxisKind.SPATIAL} if tiled else ()
            block.path = _axes(self._extents[: len(spatial) or None])
        return block.path


def _axes(extents: Sequence[float]) -> list[Loop]:
    last = len(extents) - 1
    return [Loop((Number(extent),), last - index) for index, extent in enumerate(extents)]


@dataclass(frozen=True, slots=True)
class Line:
    """A node of the loop tree (root, loop or block); `alone` if it has no siblings."""

    parent: int  # index of the parent's line; -1 at the root
    alone: bool = True
    loop: Loop | None = None
    block: TracedBlock | None = None
    ordinal: int = 0


# The nodes below a node, in order, each with the nodes below it. Blocks are leaves.
_Tree = dict[Loop | TracedBlock, "_Tree"]


def list_loop_tree_nodes(nest: TracedNest) -> list[Line]:
    """Return the loop tree's nodes in preorder; inlined blocks are the root's children."""
    root: _Tree = {}
    for block in nest.blocks:
        node = root
        for loop in () if block.inlined else block.path:
            node = node.setdefault(loop, {})
        node[block] = {}
    lines = [Line(-1)]

    def append_below(node: _Tree, parent: int) -> None:
        for item, children in node.items():
            if isinstance(item, Loop):
                lines.append(Line(parent, len(node) == 1, loop=item))
                append_below(children, len(lines) - 1)
            else:
                lines.append(Line(parent, len(node) == 1, block=item, ordinal=nest.blocks.index(item)))

    append_below(root, 0)
    return lines


class LoopsView(Extractor):
    """Extracts the features `loops`: a table with a line for each node of the loop tree."""

    view = LOOPS

    def extract_rows(self, sketch: Sketch, descriptors: Sequence[float], rows: Rows) -> Matrix:
        columns = _compute_location_columns(sketch)
        matrix = np.zeros((len(rows), LOOPS.width), dtype=np.float32)
        depths, group = np.unique(rows[:, columns], axis=0, return_inverse=True)
        for number, locations in enumerate(depths.tolist()):
            lines = np.flatnonzero(group.reshape(-1) == number)
            matrix[lines] = _describe(sketch, tuple(descriptors), tuple(locations), rows[lines])
        return matrix


def _compute_location_columns(sketch: Sketch) -> list[int]:
    return [columns.start for columns, choice in sketch.decision_slices if choice.kind is ChoiceKind.LOCATION]


@lru_cache(maxsize=1024)
def _follow_loop_nest(sketch: Sketch, descriptors: tuple[float, ...], depths: tuple[int, ...]) -> TracedNest:
    extents = [float(np.rint(2**value - 1)) for value in descriptors[1:]]
    locations = dict(zip(_compute_location_columns(sketch), depths, strict=True))
    return Follower(extents, locations).follow(steps_of(sketch))


def _describe(sketch: Sketch, descriptors: tuple[float, ...], depths: tuple[int, ...], rows: Rows) -> Matrix:
    """Return the rows of a sketch's candidates whose compute locations are all `depths`."""
    nest = _follow_loop_nest(sketch, descriptors, depths)
    lines = list_loop_tree_nodes(nest)
    table = np.zeros((len(rows), len(lines), COLUMNS))
    table[:, :, PRESENT] = 1
    for index, line in enumerate(lines):
        column = table[:, index]
        if line.loop is not None:
            extent = np.prod([np.maximum(factor.evaluate(rows), 1) for factor in line.loop.factors], axis=0)
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
    table[:, 0, FLOPS] = descriptors[0] if descriptors else 0.0
    table[:, 0, UNROLL] = np.log2(1 + nest.unroll.evaluate(rows))
    table[:, :, REACH] = table[:, :, EXTENT]
    for index, line in enumerate(lines[1:], start=1):
        table[:, index, REACH] += table[:, line.parent, REACH]
    limit = np.log2(nest.parallel.evaluate(rows))
    # Flag outer spatial loops fused to run in parallel, up to `limit` (log2) runs.
    table[:, 0, PARALLEL] = 1
    for index, line in enumerate(lines):
        if line.loop is not None and line.loop.kind is AxisKind.SPATIAL and (line.alone or line.parent == 0):
            is_within = table[:, index, REACH] <= limit
            table[:, index, PARALLEL] = np.where(is_within, table[:, line.parent, PARALLEL], 0)
    table[:, 0, PARALLEL] = 0
    table[:, :, VECTOR] = _flag_vector_loops(lines, table[:, :, EXTENT], np.log2(nest.vector.evaluate(rows)))
    # Remove loops of one iteration; their nearest remaining ancestor gets the children.
    remains = np.array([line.loop is None for line in lines]) | (table[:, :, EXTENT] > 0)
    new_index = np.cumsum(remains, axis=1) - 1
    nearest = new_index.copy()
    table[:, 0, PARENT] = -1
    for index, line in enumerate(lines[1:], start=1):
        nearest[:, index] = np.where(remains[:, index], new_index[:, index], nearest[:, line.parent])
        table[:, index, PARENT] = nearest[:, line.parent]
    row, position = np.nonzero(remains & (new_index < LINES))
    compact = np.zeros((len(table), LINES, COLUMNS), dtype=np.float32)
    compact[row, new_index[row, position]] = table[row, position]
    return compact.reshape(len(table), -1)


def _flag_vector_loops(lines: Sequence[Line], extents: Numbers, limit: Numbers) -> Flags:
    """Flag the vectorised inner spatial loops, up to `limit` (log2) iterations in all."""
    flags = np.zeros(extents.shape, dtype=np.bool_)
    for line in lines:
        fits, total, node = np.ones(len(extents), dtype=np.bool_), np.zeros(len(extents)), line
        while line.block is not None and node.alone and (loop := lines[node.parent].loop) is not None:
            total = total + extents[:, node.parent]
            fits &= (total <= limit) & (loop.kind is AxisKind.SPATIAL) | (extents[:, node.parent] == 0)
            flags[:, node.parent] |= fits
            node = lines[node.parent]
    return flags
