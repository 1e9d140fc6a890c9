"""Sketches: schedules without decisions, each stored once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select

from db.measurement_codec import pack_text, unpack_text
from db.repositories.base import Repository
from db.tables import SketchRow
from mallorn.core.values.candidate import Sketch, pack_choices, unpack_choices

REPLACED: Final = ("trace", "choices", "ordinal", "space", "tvm_version", "imported")


@dataclass(frozen=True, slots=True)
class NewSketch:
    """A sketch, and what made it."""

    sketch: Sketch
    space: str  # name and version of the space
    tvm_version: str


class Sketches(Repository):
    """Sketches by the hash of their trace."""

    def ensure_many(self, sketches: Collection[NewSketch], *, imported: bool = False) -> dict[str, int]:
        """Ids by key, new ones written. One that a space generated here replaces one that was imported."""
        values = [
            {
                "key": new.sketch.key,
                "trace": pack_text(new.sketch.trace),
                "choices": pack_choices(new.sketch.choices),
                "ordinal": new.sketch.ordinal,
                "space": new.space,
                "tvm_version": new.tvm_version,
                "imported": imported,
            }
            for new in sorted(sketches, key=lambda new: new.sketch.key)
        ]
        if values:
            insert = self.insert(SketchRow)
            replaced = {name: insert.excluded[name] for name in REPLACED}
            keeps = insert.on_conflict_do_nothing(index_elements=["key"])
            replaces = insert.on_conflict_do_update(
                index_elements=["key"], set_=replaced, where=SketchRow.imported.is_(True)
            )
            self.for_each(keeps if imported else replaces, values)
        return self.ids([new.sketch.key for new in sketches])

    def ids(self, keys: Collection[str]) -> dict[str, int]:
        """Ids by key of those that are stored."""
        query = select(SketchRow.key, SketchRow.id).where(self.among(SketchRow.key, keys))
        return dict(self.session.execute(query).all())

    def by_key(self, keys: Collection[str]) -> dict[str, Sketch]:
        """In the order of their ids; unknown keys are left out."""
        query = select(SketchRow).where(self.among(SketchRow.key, keys)).order_by(SketchRow.id)
        return {
            row.key: Sketch(row.key, trace_of(row), unpack_choices(row.choices), row.ordinal)
            for row in self.session.scalars(query)
        }

    def rows(self, sketch_ids: Collection[int]) -> Sequence[SketchRow]:
        """As they are stored, in the order of their ids."""
        query = select(SketchRow).where(self.among(SketchRow.id, sketch_ids)).order_by(SketchRow.id)
        return self.session.scalars(query).all()


def trace_of(sketch: SketchRow) -> str:
    """The trace's JSON."""
    return unpack_text(sketch.trace)
