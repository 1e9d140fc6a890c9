"""A candidate's program as far as its trace tells it: blocks, and the loops around each."""

from dataclasses import dataclass, field
from enum import IntEnum

from workers.features.trace import Number

ONE, NONE = Number(1.0), Number(0.0)


class Axis(IntEnum):
    """What a loop runs over."""

    SPATIAL = 0
    REDUCTION = 1


@dataclass(eq=False, slots=True)
class Loop:
    """A loop; blocks that lie in the same loop share the object. Its extent is the product of its factors."""

    factors: tuple[Number, ...]
    axis: int = 0  # which of its block's axes it is a part of, counted from the innermost
    level: int = 0  # which part of that axis, counted from the outermost
    kind: Axis = Axis.SPATIAL


@dataclass(eq=False, slots=True)
class Block:
    """A computation and the loops around it, outermost first."""

    path: list[Loop] = field(default_factory=list)
    structure: str = ""  # of its tiles, such as SSRSRS; empty where it is not tiled
    stage: bool = False  # made by the schedule: a cached copy, or a part of a reduction
    inlined: bool = False
    depth: int = 0  # how many of another block's loops it was moved into


@dataclass(slots=True)
class Nest:
    """The blocks in program order, and what the program may run in parallel, in vectors and unrolled."""

    blocks: list[Block] = field(default_factory=list)
    parallel: Number = ONE
    vector: Number = ONE
    unroll: Number = NONE

    def beside(self, block: Block, way: int) -> Block:
        """The nearest block after (1) or before (-1) it that is not inlined; itself if there is none."""
        others = self.blocks[self.blocks.index(block) :: way]
        return next((other for other in others[1:] if not other.inlined), block)

    def host(self, loop: Loop) -> Block | None:
        """The first block that lies in this loop."""
        return next((block for block in self.blocks if loop in block.path), None)

    def replace(self, loop: Loop, parts: list[Loop]) -> None:
        """Put other loops in its place, wherever it is."""
        for block in self.blocks:
            if loop in block.path:
                at = block.path.index(loop)
                block.path[at : at + 1] = parts
