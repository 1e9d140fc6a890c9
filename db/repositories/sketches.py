"""Sketches: schedules without decisions, each stored once."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select

from db.codec import pack_text, unpack_text
from db.repositories.base import Repository
from db.tables import Sketch


@dataclass(frozen=True, slots=True)
class NewSketch:
    """A sketch as its space made it; `choices` is workers.search.space.Choice, as dicts."""

    key: str
    trace: str
    choices: list[Any]
    ordinal: int
    space: str
    tvm_version: str


class Sketches(Repository):
    """Sketches by the hash of their trace."""

    def ensure_many(self, sketches: Collection[NewSketch]) -> dict[str, int]:
        """Ids by key, new ones written."""
        values = [
            asdict(new) | {"trace": pack_text(new.trace)} for new in sorted(sketches, key=lambda new: new.key)
        ]
        if values:
            self.session.execute(
                self.insert(Sketch).values(values).on_conflict_do_nothing(index_elements=["key"])
            )
        return self.ids([new.key for new in sketches])

    def ids(self, keys: Collection[str]) -> dict[str, int]:
        """Ids by key of those that are stored."""
        query = select(Sketch.key, Sketch.id).where(Sketch.key.in_(keys))
        return dict(self.session.execute(query).all())

    def get_many(self, keys: Collection[str]) -> Sequence[Sketch]:
        """In the order of their ids; unknown keys are left out."""
        return self.session.scalars(select(Sketch).where(Sketch.key.in_(keys)).order_by(Sketch.id)).all()

    def by_ids(self, sketch_ids: Collection[int]) -> Sequence[Sketch]:
        """In the order of their ids."""
        return self.session.scalars(select(Sketch).where(Sketch.id.in_(sketch_ids)).order_by(Sketch.id)).all()


def trace_of(sketch: Sketch) -> str:
    """The trace's JSON."""
    return unpack_text(sketch.trace)
