"""A candidate's program as seen in its trace: blocks, and the loops around each."""

from dataclasses import dataclass, field
from enum import IntEnum

from workers.features.resolved_trace import Number

ONE, NONE = Number(1.0), Number(0.0)


class AxisKind(IntEnum):
    """The kind of axis that a loop runs over."""

    SPATIAL = 0
    REDUCTION = 1


@dataclass(eq=False, slots=True)
class Loop:
    """A loop, shared by the blocks inside it. Its extent is the product of its factors."""

    factors: tuple[Number, ...]
    axis: int = 0  # the axis of its block that it is a part of, counted from the innermost
    level: int = 0  # the part of that axis, counted from the outermost
    kind: AxisKind = AxisKind.SPATIAL


@dataclass(eq=False, slots=True)
class TracedBlock:
    """A computation and the loops around it, outermost first."""

    path: list[Loop] = field(default_factory=list)
    structure: str = ""  # of its tiles, such as SSRSRS; empty where it is not tiled
    stage: bool = False  # made by the schedule: a cached copy, or a part of a reduction
    inlined: bool = False
    depth: int = 0  # how many of another block's loops it was moved into


@dataclass(slots=True)
class TracedNest:
    """The blocks in program order, and the program's limits for parallel, vectorised and unrolled loops."""

    blocks: list[TracedBlock] = field(default_factory=list)
    parallel: Number = ONE
    vector: Number = ONE
    unroll: Number = NONE

    def beside(self, block: TracedBlock, way: int) -> TracedBlock:
        """The nearest block after (1) or before (-1) a block that is not inlined; itself if there is none."""
        others = self.blocks[self.blocks.index(block) :: way]
        return next((other for other in others[1:] if not other.inlined), block)

    def host(self, loop: Loop) -> TracedBlock | None:
        """The first block in this loop."""
        return next((block for block in self.blocks if loop in block.path), None)

    def replace(self, loop: Loop, parts: list[Loop]) -> None:
        """Replace this loop by others, everywhere."""
        for block in self.blocks:
            if loop in block.path:
                at = block.path.index(loop)
                block.path[at : at + 1] = parts
