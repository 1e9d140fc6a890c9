"""Measurements imported from other datasets of Mallorn."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import select

from db.repositories.base import Repository
from db.tables import Measurement, SourceDataset

IDENTITY: Final = ("source_id", "source_row", "created_at")


class ForeignRows(Repository):
    """Rows identified by their dataset, their id there and their date."""

    def add(self, rows: Sequence[Mapping[str, object]]) -> int:
        """Store rows that are not here yet; return their number."""
        new = self._without_own(rows)
        if not new:
            return 0
        once = self.insert(Measurement).on_conflict_do_nothing(
            index_elements=IDENTITY, index_where=Measurement.source_id.is_not(None)
        )
        return self.for_each(once, new)

    def _without_own(self, rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
        """Drop rows that were measured here; dates tell, because a copy of this database reuses ids."""
        own = self.session.scalar(select(SourceDataset.id).where(SourceDataset.own))
        returned = [row["source_row"] for row in rows if row["source_id"] == own]
        if not returned:
            return [dict(row) for row in rows]
        mine = self.among(Measurement.id, returned), Measurement.source_id.is_(None)
        found = self.session.execute(select(Measurement.id, Measurement.created_at).where(*mine))
        here = {(own, *pair) for pair in found}
        return [dict(row) for row in rows if tuple(row[name] for name in IDENTITY) not in here]
