"""Cost models: trained predictors and their versions."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, insert, select

from db.repositories.base import Repository
from db.tables import CostModel, TargetRow


@dataclass(frozen=True, slots=True)
class NewCostModel:
    """A predictor as its trainer made it."""

    family: str
    target_id: int
    name: str
    seen_upto: int
    rows: int
    metrics: dict[str, Any]
    blob: bytes
    parent_id: int | None = None


class Head(NamedTuple):
    """A cost model without its bytes."""

    id: int
    version: int
    seen_upto: int
    rows: int


class CostModels(Repository):
    """Cost models by family, target and name; versions count from 1."""

    def add(self, new: NewCostModel) -> CostModel:
        """Store the next version."""
        # Two trainers of one family take turns here.
        lock = select(TargetRow.id).where(TargetRow.id == new.target_id).with_for_update(key_share=True)
        self.session.execute(lock).all()
        same = _line(new.family, new.target_id, new.name)
        version = (self.session.scalar(select(func.max(CostModel.version)).where(*same)) or 0) + 1
        stored = insert(CostModel).values(**asdict(new), version=version).returning(CostModel)
        return self.session.scalars(stored).one()

    def latest(self, family: str, target_id: int, name: str) -> CostModel | None:
        """The newest version, bytes included."""
        query = select(CostModel).where(*_line(family, target_id, name)).order_by(CostModel.version.desc())
        return self.session.scalars(query.limit(1)).one_or_none()

    def head(self, family: str, target_id: int, name: str) -> Head | None:
        """The newest version without its bytes: enough to see whether it is out of date."""
        columns = CostModel.id, CostModel.version, CostModel.seen_upto, CostModel.rows
        query = select(*columns).where(*_line(family, target_id, name)).order_by(CostModel.version.desc())
        row = self.session.execute(query.limit(1)).one_or_none()
        return None if row is None else Head(*row)

    def get(self, cost_model_id: int) -> CostModel:
        """A cost model whose id came from the database."""
        return self.session.get_one(CostModel, cost_model_id)


def _line(family: str, target_id: int, name: str) -> tuple[ColumnElement[bool], ...]:
    return CostModel.family == family, CostModel.target_id == target_id, CostModel.name == name
