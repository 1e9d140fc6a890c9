"""Stored rows as the values that searchers and builders work with."""

from db.repositories.sketches import trace_of
from db.tables import Sketch as SketchRow
from workers.search.space import Choice, ChoiceKind, Sketch


def sketch_of(row: SketchRow) -> Sketch:
    """A stored sketch as a value."""
    choices = tuple(
        Choice(
            kind=ChoiceKind(choice["kind"]),
            width=choice["width"],
            extent=choice["extent"],
            limit=choice["limit"],
            values=tuple(choice["values"]),
            labels=tuple(choice["labels"]),
            weights=tuple(choice["weights"]),
        )
        for choice in row.choices
    )
    return Sketch(row.key, trace_of(row), choices, row.ordinal)
