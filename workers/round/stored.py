"""Stored rows as the values that searchers and builders work with."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from costmodels.base import CostModel
from db.repositories.sketches import trace_of
from db.tables import CostModel as CostModelRow
from db.tables import Sketch as SketchRow
from mallorn.core.names import resolve
from mallorn.core.plugins import blaming
from workers.search.space import Choice, ChoiceKind, Sketch


def model_of(row: CostModelRow) -> CostModel:
    """A stored cost model as a value, which nobody may fit: others were given the same."""
    return _loaded(row.name, row.blob)


@lru_cache(maxsize=8)  # a model takes 20 ms to load and is asked about many rounds before its next version
def _loaded(name: str, blob: bytes) -> CostModel:
    with blaming(("cost_model", name)):
        model: CostModel = resolve("cost_model", name).load(blob)
    return model


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
