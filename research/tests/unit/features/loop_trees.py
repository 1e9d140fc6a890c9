"""Reads loops out of the rows of a loop tree."""

from mallorn.searchers.space import Matrix
from mallorn_research.features.loop_tree_view import EXTENT, PARENT


def extents_above(lines: Matrix, at: int) -> list[int]:
    """The extents of the loops around a line of a loop tree, outermost first."""
    found: list[int] = []
    while (at := int(lines[at, PARENT])) > 0:
        found.insert(0, round(2 ** lines[at, EXTENT]))
    return found
