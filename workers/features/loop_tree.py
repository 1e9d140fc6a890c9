"""The loops of all blocks as one tree, its lines in preorder."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from workers.features.traced_nest import Loop, TracedBlock, TracedNest


@dataclass(frozen=True, slots=True)
class Line:
    """A node of the tree: the root, a loop, or a block. `alone` if it has no siblings."""

    parent: int  # the line of its parent; -1 at the root
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
    """The lines of a nest; inlined blocks are children of the root."""
    root = _Node()
    for ordinal, block in enumerate(nest.blocks):
        node = root
        for loop in () if block.inlined else block.path:
            found = next((child for child in node.children if child.loop is loop), None)
            if found is None:
                found = _Node(loop)
                node.children.append(found)
            node = found
        node.children.append(_Node(block=block, ordinal=ordinal))
    lines = [Line(-1)]
    for line in _below(root, 0, lines):
        lines.append(line)
    return lines


def _below(node: _Node, at: int, lines: list[Line]) -> Iterator[Line]:
    for child in node.children:
        yield Line(at, len(node.children) == 1, child.loop, child.block, child.ordinal)
        yield from _below(child, len(lines) - 1, lines)
