"""Compilation targets of jobs and measurements."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, delete, exists, or_, select

from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.targets import Target
from mallorn.db.repositories.base import Repository, require_row
from mallorn.db.tables import Base, Measurement, TargetRow


class Targets(Repository):
    """Canonical targets, each stored once."""

    def ensure(self, target: Target) -> TargetRow:
        """Return a target's row, inserted if new, and locked against deletion until the commit."""
        row = select(TargetRow).where(TargetRow.key == target.key).with_for_update(read=True, key_share=True)
        if (existing := self.session.scalars(row).one_or_none()) is not None:
            return existing
        values = {"key": target.key, "text": target.text, "toolchain": target.toolchain}
        insertion = self.insert(TargetRow).values(values).on_conflict_do_nothing(index_elements=["key"])
        self.session.execute(insertion)
        return self.session.scalars(row).one()

    def get(self, target_id: int) -> TargetRow:
        """Return the target with this id. Raises NotFound if there is none."""
        return require_row(self.session.get(TargetRow, target_id), f"target {target_id}")

    def list_measured(self, workload_ids: Iterable[int]) -> Sequence[TargetRow]:
        is_of_workload = self.is_among(Measurement.workload_id, workload_ids)
        target_ids = select(Measurement.target_id).where(is_of_workload)
        query = select(TargetRow).where(TargetRow.id.in_(target_ids)).order_by(TargetRow.id)
        return self.session.scalars(query).all()

    def list(self) -> Sequence[TargetRow]:
        return self.session.scalars(select(TargetRow).order_by(TargetRow.id)).all()

    def texts(self, ids: Iterable[int]) -> dict[int, str]:
        rows = self.session.scalars(select(TargetRow).where(self.is_among(TargetRow.id, set(ids))))
        return {row.id: row.text for row in rows}

    def forget_unused(self, ids: Iterable[int]) -> int:
        """Delete those of these targets to which no row refers; return how many."""
        targets = Base.metadata.tables[TargetRow.__tablename__]
        keys = (key for table in Base.metadata.tables.values() for key in table.foreign_keys)
        users = [key.parent for key in keys if key.references(targets)]
        unused = [~exists().where(column == TargetRow.id) for column in users]
        return self.execute_and_count(delete(TargetRow).where(self.is_among(TargetRow.id, set(ids)), *unused))

    def find(self, key: str) -> TargetRow | None:
        return self.session.scalars(select(TargetRow).where(TargetRow.key == key)).one_or_none()


def is_virtual() -> ColumnElement[bool]:
    """Return the condition that a target names a virtual device, which every worker has."""
    return or_(*(TargetRow.text.contains(f'"device":"{name}"') for name in sorted(VIRTUAL_DEVICES)))
