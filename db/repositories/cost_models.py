"""Cost models: trained predictors and their versions."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, func, insert, select, update

from db.repositories.base import Repository
from db.tables import CostModelRow, TargetRow
from mallorn.core.cost_model_name import CostModelName, base_family


@dataclass(frozen=True, slots=True)
class NewCostModel:
    """A predictor as its trainer made it."""

    family: str
    target_id: int
    name: str
    seen_upto: int
    rows: int
    metrics: dict[str, object]
    blob: bytes
    parent_id: int | None = None
    snapshot: str | None = None  # the frozen rows it learned from; None: its family's up to seen_upto


class Head(NamedTuple):
    """The active version of a line without its bytes, and what the line's newest version had seen."""

    id: int
    version: int
    seen_upto: int
    rows: int
    base: str | None  # the version that it is built on
    view: str  # what it reads, as its trainer told it; empty: an earlier version trained it


class BaseHead(NamedTuple):
    """The active version of a base, without its bytes."""

    id: int
    name: CostModelName
    rows: int
    view: str  # what it reads, as its trainer told it; empty: an earlier version trained it


class BaseElsewhere(NamedTuple):
    """The active version of a base on another target."""

    head: BaseHead
    target: str


class CostModels(Repository):
    """Cost models by family, target and name: a line. Versions count from 1; one of each line is active."""

    def add(self, new: NewCostModel, active: bool = True) -> CostModelRow:
        """Store the next version, active unless told otherwise."""
        # Two trainers of one family take turns here.
        self.lock_target(new.target_id)
        same = _line(new.family, new.target_id, new.name)
        version = (self.session.scalar(select(func.max(CostModelRow.version)).where(*same)) or 0) + 1
        if active:
            self.changed(update(CostModelRow).where(*same, CostModelRow.active).values(active=False))
        stored = insert(CostModelRow).values(**asdict(new), version=version, active=active)
        return self.session.scalars(stored.returning(CostModelRow)).one()

    def lock_target(self, target_id: int) -> None:
        """Hold a target's lines until the transaction ends; SQLite holds the whole database anyway."""
        lock = select(TargetRow.id).where(TargetRow.id == target_id).with_for_update(key_share=True)
        self.session.execute(lock).all()

    def latest(self, family: str, target_id: int, name: str) -> CostModelRow | None:
        """The active version, bytes included."""
        query = select(CostModelRow).where(*_line(family, target_id, name), CostModelRow.active)
        return self.session.scalars(query).one_or_none()

    def head(self, family: str, target_id: int, name: str) -> Head | None:
        """The active version, and the rows that its line has seen.

        After a rollback the line has seen more than its active version. A refit waits for more rows than the
        newest version had, or it would undo the rollback at once.
        """
        facts = CostModelRow.version, CostModelRow.seen_upto, CostModelRow.rows, CostModelRow.metrics
        columns = CostModelRow.id, CostModelRow.active, *facts
        query = select(*columns).where(*_line(family, target_id, name)).order_by(CostModelRow.version.desc())
        newest = self.session.execute(query.limit(1)).one_or_none()
        if newest is None:
            return None
        active = self.session.execute(query.where(CostModelRow.active)).one_or_none()
        if active is None:  # no version was good enough so far
            return None
        base, view = active.metrics.get("base"), str(active.metrics.get("view", ""))
        return Head(active.id, active.version, newest.seen_upto, newest.rows, base, view)

    def bases(self, op: str, target_id: int) -> Sequence[BaseHead]:
        """The active versions of all models that were pre-trained for an operator, the newest first."""
        family = base_family(op)
        facts = CostModelRow.version, CostModelRow.rows, CostModelRow.metrics
        columns = CostModelRow.id, CostModelRow.name, *facts
        same = CostModelRow.family == family, CostModelRow.target_id == target_id, CostModelRow.active
        rows = self.session.execute(select(*columns).where(*same).order_by(CostModelRow.id.desc()))
        return [_base(family, row) for row in rows]

    def bases_elsewhere(self, op: str, target_id: int) -> Sequence[BaseElsewhere]:
        """The active bases of an operator on other targets, those that learned from most rows first."""
        family = base_family(op)
        facts = CostModelRow.version, CostModelRow.rows, CostModelRow.metrics
        columns = CostModelRow.id, CostModelRow.name, *facts, TargetRow.text
        other = CostModelRow.family == family, CostModelRow.target_id != target_id, CostModelRow.active
        query = select(*columns).join(TargetRow, TargetRow.id == CostModelRow.target_id).where(*other)
        return [
            BaseElsewhere(_base(family, row), row.text)
            for row in self.session.execute(query.order_by(CostModelRow.rows.desc(), CostModelRow.id.desc()))
        ]

    def knows(self, snapshot: str) -> bool:
        """Whether a version learned from this snapshot."""
        query = select(CostModelRow.id).where(CostModelRow.snapshot == snapshot).limit(1)
        return self.session.scalar(query) is not None

    def get(self, cost_model_id: int) -> CostModelRow:
        """A cost model whose id came from the database."""
        return self.session.get_one(CostModelRow, cost_model_id)


def _base(family: str, row: Row[*tuple[Any, ...]]) -> BaseHead:
    name = CostModelName(family, row.name, row.version)
    return BaseHead(row.id, name, row.rows, str(row.metrics.get("view", "")))


def _line(family: str, target_id: int, name: str) -> tuple[ColumnElement[bool], ...]:
    return CostModelRow.family == family, CostModelRow.target_id == target_id, CostModelRow.name == name
