"""Targets."""

from collections.abc import Sequence

from sqlalchemy import select

from db.repositories.base import Repository
from db.tables import TargetRow
from mallorn.core.errors import NotFound
from mallorn.core.targets import Target


class Targets(Repository):
    """Canonical targets, each stored once."""

    def ensure(self, target: Target) -> TargetRow:
        """The row of a target, written if it is new."""
        if (known := self.find(target.key)) is not None:
            return known
        values = {"key": target.key, "text": target.text}
        self.session.execute(
            self.insert(TargetRow).values(values).on_conflict_do_nothing(index_elements=["key"])
        )
        return self.session.scalars(select(TargetRow).where(TargetRow.key == target.key)).one()

    def get(self, target_id: int) -> TargetRow:
        """Raises NotFound."""
        row = self.session.get(TargetRow, target_id)
        if row is None:
            raise NotFound(f"there is no target {target_id}")
        return row

    def list(self) -> Sequence[TargetRow]:
        """All that the dataset knows, the oldest first."""
        return self.session.scalars(select(TargetRow).order_by(TargetRow.id)).all()

    def find(self, key: str) -> TargetRow | None:
        """The target of this key (mallorn.core.targets.Target.key)."""
        return self.session.scalars(select(TargetRow).where(TargetRow.key == key)).one_or_none()
