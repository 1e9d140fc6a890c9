"""Replay a schedule trace to derive the resulting loop nest approximately.

A trace does not say which block reads which, nor how much of a producer a tile of the consumer
needs. The follower takes the next block that is not inlined as consumer, and keeps the inner
loops of a block that moves into another's loops. The error is the same for all candidates.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from workers.features.resolved_trace import Number, TraceStep

INLINED: Final = -2
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
    """A loop, shared by the blocks inside it. Its extent is the product of its factors."""

    factors: tuple[Number, ...]
    axis: int = 0  # which axis of its block the loop is a part of, counted from the innermost
    level: int = 0  # which part of that axis, counted from the outermost
    kind: AxisKind = AxisKind.SPATIAL


@dataclass(eq=False, slots=True)
class TracedBlock:
    """A computation and the loops around it, outermost first."""

    path: list[Loop] = field(default_factory=list)
    structure: str = ""  # of its tiles, such as SSRSRS; empty if the block is not tiled
    stage: bool = False  # created by the schedule: a cached copy, or a part of a reduction
    inlined: bool = False
    depth: int = 0  # number of another block's loops that the block was moved into


@dataclass(slots=True)
class TracedNest:
    """Blocks in program order, and the limits on parallel, vectorised and unrolled loops."""

    blocks: list[TracedBlock] = field(default_factory=list)
    parallel: Number = ONE
    vector: Number = ONE
    unroll: Number = NONE

    def beside(self, block: TracedBlock, way: int) -> TracedBlock:
        """Return the next (1) or previous (-1) block that is not inlined, else `block`."""
        others = self.blocks[self.blocks.index(block) :: way]
        return next((other for other in others[1:] if not other.inlined), block)

    def host(self, loop: Loop) -> TracedBlock | None:
        """Return the first block inside this loop, or None."""
        return next((block for block in self.blocks if loop in block.path), None)

    def replace(self, loop: Loop, parts: list[Loop]) -> None:
        for block in self.blocks:
            if loop in block.path:
                index = block.path.index(loop)
                block.path[index : index + 1] = parts


class Follower:
    """Replays a trace step by step; ignores primitives that do not change loops.

    `extents` are the main block's loop extents, `depths` the compute locations by column.
    """

    def __init__(self, extents: Sequence[float], depths: Mapping[int, int]) -> None:
        self._extents = extents
        self._depths = depths
        self._nest = TracedNest()
        self._blocks: dict[str, TracedBlock] = {}
        self._loops: dict[str, Loop] = {}
        self._handlers: dict[str, Callable[[TraceStep], None]] = {
            "GetSBlock": self._get_block,
            "GetChildBlocks": self._get_child_blocks,
            "GetLoops": self._get_loops,
            "GetConsumers": lambda step: self._name_neighbour(step, 1),
            "GetProducers": lambda step: self._name_neighbour(step, -1),
            "Split": self._split,
            "Fuse": self._fuse,
            "Reorder": self._reorder,
            "AddUnitLoop": self._add_unit_loop,
            "RFactor": self._rfactor,
            "DecomposeReduction": self._decompose,
            "ReadAt": lambda step: self._copy_at(step, 0),
            "WriteAt": lambda step: self._copy_at(step, 1),
            "ReIndex": lambda step: self._cache(step, int(step.attrs[1])),
            "CacheRead": lambda step: self._cache(step, 0),
            "CacheWrite": lambda step: self._cache(step, 1),
            "ComputeInline": self._inline,
            "ReverseComputeInline": self._inline,
            "ComputeAt": self._compute_at,
            "ReverseComputeAt": self._compute_at,
            "Blockize": self._blockize,
            "Annotate": self._annotate,
        }

    def follow(self, steps: Sequence[TraceStep]) -> TracedNest:
        for step in steps:
            if step.kind in self._handlers:
                self._handlers[step.kind](step)
        for block in self._nest.blocks:
            self._path(block)
        return self._nest

    def _get_block(self, step: TraceStep) -> None:
        block = self._blocks[step.outputs[0]] = TracedBlock()
        if step.attrs[0] != "root":
            self._nest.blocks.append(block)

    def _get_child_blocks(self, step: TraceStep) -> None:
        """Bind the outputs to the root's children: every block that is not inlined yet.

        DLight's traces begin with this step, so it may have to create the blocks.
        """
        if not self._nest.blocks:
            self._nest.blocks = [TracedBlock() for _ in step.outputs]
        children = [block for block in self._nest.blocks if not block.inlined]
        self._blocks |= dict(zip(step.outputs, children, strict=False))

    def _get_loops(self, step: TraceStep) -> None:
        block = self._blocks[step.names[0]]
        if len(block.path) != len(step.outputs):
            extents = self._extents if len(self._extents) == len(step.outputs) else [1.0] * len(step.outputs)
            block.path = _axes(extents)
        self._loops |= dict(zip(step.outputs, block.path, strict=True))

    def _name_neighbour(self, step: TraceStep, way: int) -> None:
        neighbour = self._nest.beside(self._blocks[step.names[0]], way)
        self._blocks |= dict.fromkeys(step.outputs, neighbour)

    def _split(self, step: TraceStep) -> None:
        loop = self._loops[step.names[0]]
        host = self._nest.host(loop)
        # A missing factor (the text "None"), which TVM infers, counts as 1.
        factors = [value if isinstance(value, Number) else ONE for value in step.inputs[1:]]
        summed = host is not None and len(factors) == host.structure.count("R")
        kind = AxisKind.REDUCTION if summed else loop.kind
        parts = [Loop((factor,), loop.axis, level, kind) for level, factor in enumerate(factors)]
        self._nest.replace(loop, parts)
        self._loops |= dict(zip(step.outputs, parts, strict=True))

    def _add_unit_loop(self, step: TraceStep) -> None:
        loop = self._loops[step.outputs[0]] = Loop((ONE,))
        if block := self._blocks.get(step.names[0]):
            block.path.append(loop)

    def _fuse(self, step: TraceStep) -> None:
        loops = [self._loops[name] for name in step.names]
        factors = tuple(factor for loop in loops for factor in loop.factors)
        fused = dataclasses.replace(loops[-1], factors=factors)
        self._nest.replace(loops[0], [fused])
        for loop in loops[1:]:
            self._nest.replace(loop, [])
        self._loops[step.outputs[0]] = fused

    def _reorder(self, step: TraceStep) -> None:
        ordered = [self._loops[name] for name in step.names]
        for block in self._nest.blocks:
            indices = [index for index, loop in enumerate(block.path) if loop in ordered]
            if len(indices) == len(ordered):
                for index, loop in zip(indices, ordered, strict=True):
                    block.path[index] = loop

    def _rfactor(self, step: TraceStep) -> None:
        """Insert a block of partial sums along the loop, which the old block then adds up."""
        factored = self._loops[step.names[0]]
        block = self._nest.host(factored)
        if block is None:
            return
        first = min(int(step.attrs[0]), block.path.index(factored))
        before, summed = block.path[:first], block.path[first:]
        kinds = [AxisKind.SPATIAL if loop is factored else AxisKind.REDUCTION for loop in summed]
        inner = [dataclasses.replace(loop, kind=kind) for loop, kind in zip(summed, kinds, strict=True)]
        partial = TracedBlock([*map(dataclasses.replace, before), *inner], stage=True)
        block.path = [*before, dataclasses.replace(factored, kind=AxisKind.REDUCTION)]
        self._nest.blocks.insert(self._nest.blocks.index(block), partial)
        self._blocks[step.outputs[0]] = partial

    def _decompose(self, step: TraceStep) -> None:
        """Create the block that initialises the sum, without loops of its own."""
        self._blocks[step.outputs[0]] = TracedBlock(stage=True, inlined=True)

    def _copy_at(self, step: TraceStep, after: int) -> None:
        loop, block = self._loops[step.names[0]], self._blocks[step.names[1]]
        depth = block.path.index(loop) + 1 if loop in block.path else 0
        copy = self._blocks[step.outputs[0]] = TracedBlock(block.path[:depth], stage=True, depth=depth)
        self._nest.blocks.insert(self._nest.blocks.index(block) + after, copy)

    def _blockize(self, step: TraceStep) -> None:
        """Remove the loops that become part of the tensorised block."""
        loop = self._loops[step.names[0]]
        if (host := self._nest.host(loop)) is not None:
            host.path = host.path[: host.path.index(loop)]
            self._blocks[step.outputs[0]] = host

    def _cache(self, step: TraceStep, after: int) -> None:
        copy = self._blocks[step.outputs[0]] = TracedBlock(stage=True)
        index = self._nest.blocks.index(self._blocks[step.names[0]])
        self._nest.blocks.insert(index + after, copy)

    def _inline(self, step: TraceStep) -> None:
        self._blocks[step.names[0]].inlined = True

    def _compute_at(self, step: TraceStep) -> None:
        block = self._blocks[step.names[0]]
        if step.numbers:
            depth = self._depths[step.numbers[0].column or 0] + 1
            host = self._nest.beside(block, 1)
            block.inlined = depth == INLINED + 1
        else:
            loop = self._loops[step.names[1]]
            host = self._nest.host(loop) or block
            depth = host.path.index(loop) + 1
        block.depth = max(0, depth)
        if block.depth and host is not block:
            # Reductions and tiled loops stay; other loops shrink to what the consumer needs.
            block.path = self._path(host)[: block.depth] + [
                loop
                for index, loop in enumerate(self._path(block))
                if index >= block.depth
                or loop.kind is AxisKind.REDUCTION
                or any(factor.column is not None for factor in loop.factors)
            ]

    def _annotate(self, step: TraceStep) -> None:
        key = str(step.attrs[0])
        if key == _STRUCTURE:
            self._blocks[step.names[0]].structure = step.names[1].strip('"')
        elif key in _LIMITS:
            setattr(self._nest, _LIMITS[key], step.numbers[0])

    def _path(self, block: TracedBlock) -> list[Loop]:
        """Return a block's loops; if the trace names none, use the main block's extents."""
        if not block.path and not block.inlined:
            tiled = next((other for other in self._nest.blocks if other.structure), None)
            spatial = {loop.axis for loop in tiled.path if loop.kind is AxisKind.SPATIAL} if tiled else ()
            block.path = _axes(self._extents[: len(spatial) or None])
        return block.path


def _axes(extents: Sequence[float]) -> list[Loop]:
    last = len(extents) - 1
    return [Loop((Number(extent),), last - index) for index, extent in enumerate(extents)]
