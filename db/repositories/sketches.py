"""Sketches: schedules without decisions, each stored once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import or_, select

from mallorn.core.values.candidate import Sketch, pack_choices, unpack_choices
from mallorn.db.measurement_codec import pack_text, unpack_text
from mallorn.db.repositories.base import Repository
from mallorn.db.tables import SketchRow

REPLACED: Final = ("trace", "choices", "ordinal", "space", "tvm_version", "imported")


@dataclass(frozen=True, slots=True)
class NewSketch:
    """A sketch, with the design space and the TVM version that generated it."""

    sketch: Sketch
    space: str  # name and version of the design space
    tvm_version: str


class Sketches(Repository):
    """Sketches by the hash of their trace."""

    def ensure_many(self, sketches: Collection[NewSketch], *, imported: bool = False) -> dict[str, int]:
        """Insert new sketches; return all ids by key. One generated here replaces an imported
        one, and one whose place in the design space was another in older code."""
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
            columns = {name: insert.excluded[name] for name in REPLACED}
            keep_old = insert.on_conflict_do_nothing(index_elements=["key"])
            names = "ordinal", "space", "tvm_version"
            changes = (getattr(SketchRow, name) != insert.excluded[name] for name in names)
            is_older = or_(SketchRow.imported.is_(True), *changes)
            replace_older = insert.on_conflict_do_update(index_elements=["key"], set_=columns, where=is_older)
            self.execute_for_rows(keep_old if imported else replace_older, values)
        return self.ids([new.sketch.key for new in sketches])

    def ids(self, keys: Collection[str]) -> dict[str, int]:
        """Return ids by key, without sketches that are not stored."""
        query = select(SketchRow.key, SketchRow.id).where(self.is_among(SketchRow.key, keys))
        return dict(self.session.execute(query).all())

    def by_key(self, keys: Collection[str]) -> dict[str, Sketch]:
        """Return sketches by key, in the order of ids, without unknown keys."""
        query = select(SketchRow).where(self.is_among(SketchRow.key, keys)).order_by(SketchRow.id)
        return {
            row.key: Sketch(row.key, trace_of(row), unpack_choices(row.choices), row.ordinal)
            for row in self.session.scalars(query)
        }

    def rows(self, sketch_ids: Collection[int]) -> Sequence[SketchRow]:
        query = select(SketchRow).where(self.is_among(SketchRow.id, sketch_ids)).order_by(SketchRow.id)
        return self.session.scalars(query).all()


def trace_of(sketch: SketchRow) -> str:
    return unpack_text(sketch.trace)
