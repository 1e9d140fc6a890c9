"""Stored rows as the values that searchers and builders work with."""

from collections.abc import Iterable, Mapping
from typing import Any

from db.repositories.sketches import trace_of
from db.tables import Sketch as SketchRow
from workers.search.space import Choice, ChoiceKind, Sketch


def sketch_of(row: SketchRow) -> Sketch:
    """A stored sketch as a value."""
    return sketch_from(row.key, trace_of(row), row.choices, row.ordinal)


def sketch_from(key: str, trace: str, choices: Iterable[Mapping[str, Any]], ordinal: int) -> Sketch:
    """A sketch whose choices are plain dicts."""
    made = tuple(
        Choice(
            kind=ChoiceKind(choice["kind"]),
            width=choice["width"],
            extent=choice["extent"],
            limit=choice["limit"],
            values=tuple(choice["values"]),
            labels=tuple(choice["labels"]),
            weights=tuple(choice["weights"]),
        )
        for choice in choices
    )
    return Sketch(key, trace, made, ordinal)
