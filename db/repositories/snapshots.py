"""Named, frozen sets of measurements, their rows page by page, and the keys of datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self
from uuid import uuid4

from sqlalchemy import ColumnElement, Select, Subquery, case, func, select, text
from sqlalchemy.orm import InstrumentedAttribute, class_mapper

from mallorn.core.errors import Conflict, NotFound
from mallorn.db.columnar_rows import Columns
from mallorn.db.repositories.base import Repository, require_row
from mallorn.db.repositories.measurement_filters import is_shared
from mallorn.db.tables import (
    Context,
    Job,
    Measurement,
    SketchRow,
    Snapshot,
    SourceDataset,
    TargetRow,
    Workload,
)


class Snapshots(Repository):
    """Snapshots by name. A snapshot never changes."""

    def add(self, name: str, upto: int, selection: Mapping[str, object], rows: int, digest: str) -> Snapshot:
        """Store a snapshot. Raises Conflict if the name is taken, even by the same rows."""
        insert = self.insert(Snapshot).values(
            name=name, upto=upto, filter=selection, rows=rows, digest=digest
        )
        if not self.execute_and_count(insert.on_conflict_do_nothing(index_elements=["name"])):
            raise name_taken_error(name)
        return self.get(name)

    def find(self, name: str) -> Snapshot | None:
        return self.session.scalars(select(Snapshot).where(Snapshot.name == name)).one_or_none()

    def get(self, name: str) -> Snapshot:
        """Return the snapshot with this name. Raises NotFound if there is none."""
        return require_row(self.find(name), f"snapshot {name}", "mallorn dataset snapshot   (lists them)")

    def list(self) -> Sequence[Snapshot]:
        return self.session.scalars(select(Snapshot).order_by(Snapshot.id.desc())).all()


class Sources(Repository):
    """Datasets by the UUID that each gave itself: this one and those of imported rows."""

    def own(self) -> SourceDataset:
        """Return this dataset; the first call creates its key."""
        insert = self.insert(SourceDataset).values(key=uuid4().hex, own=True)
        self.session.execute(insert.on_conflict_do_nothing())
        return self.session.scalars(select(SourceDataset).where(SourceDataset.own)).one()

    def ensure(self, key: str) -> int:
        """Return the id of the dataset with this key; insert it if it is new."""
        insert = self.insert(SourceDataset).values(key=key, own=False)
        self.session.execute(insert.on_conflict_do_nothing(index_elements=["key"]))
        return self.session.scalars(select(SourceDataset.id).where(SourceDataset.key == key)).one()


def name_taken_error(name: str) -> Conflict:
    return Conflict(f"there is a snapshot {name} already", hint=f"mallorn dataset snapshot {name}-2")


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of measurements: each field that is not None must match."""

    target: str | None = None  # canonical JSON
    op: str | None = None  # Workload.op
    model: str | None = None  # the SHA-256 of the network whose job measured it
    since: float | None = None  # seconds since the epoch, included
    until: float | None = None  # not included

    def as_dict(self) -> dict[str, object]:
        """Return the fields that are not None, for a JSON column."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.as_dict().items()) or "everything"


# Ids that only mean something here, and facts of this host.
_LEFT_OUT: Final = {"job_id", "round_id", "device_id", "target_id", "source_id", "built_by", "limit_sec"}
_MODEL: Final = case((~Job.private, Job.model_id))  # hides that a private job used a known program


class SnapshotRows(Repository):
    """Reads measurements up to a fixed id, except those of private programs."""

    def find_newest_settled_id(self) -> int:
        """Return the newest id; no smaller one can follow. Needs a write transaction."""
        if self.session.get_bind().dialect.name == "postgresql":
            # Rows get their ids before the commit: wait for transactions that have some. The
            # lock excludes itself: two holders that write rows would wait for each other.
            self.session.execute(text("LOCK TABLE measurements IN SHARE ROW EXCLUSIVE MODE"))
        return self.session.scalar(select(func.coalesce(func.max(Measurement.id), 0))) or 0

    def page_end(self, after_id: int, upto: int, size: int) -> int | None:
        """Return the last id of the next `size` rows, matching or not; None if none."""
        ids = select(Measurement.id).where(*_between(after_id, upto)).order_by(Measurement.id).limit(size)
        end: int | None = self.session.scalar(select(func.max(ids.subquery().c.id)))
        return end

    def page(self, selection: Selection, after_id: int, upto: int) -> Columns:
        """Return the selected rows with ids above `after_id` up to `upto`, ordered by id.

        The columns are those of measurements except _LEFT_OUT, and names of related rows:
        `workload`, `op`, `flops`, `target`, `sketch`, `model`, `source` (null: own).
        """
        # With this limit both databases use the index of the ids.
        ids = select(Measurement.id).where(*_between(after_id, upto)).order_by(Measurement.id)
        window = ids.limit(upto - after_id).subquery()
        query = _query(window).where(is_shared(), *(column == value for column, value in _filters(selection)))
        if selection.model is not None:
            query = query.where(~Job.private)
        if selection.since is not None:
            query = query.where(Measurement.created_at >= selection.since)
        if selection.until is not None:
            query = query.where(Measurement.created_at < selection.until)
        return Columns.of(self.session.execute(query.order_by(window.c.id)))

    def contexts(self) -> dict[int, Context]:
        return {context.id: context for context in self.session.scalars(select(Context))}

    def check(self, selection: Selection) -> None:
        """Raise NotFound for an unknown, perhaps mistyped target, operator or model."""
        for column, value in _filters(selection):
            if self.session.scalar(select(column).where(column == value).limit(1)) is None:
                raise NotFound(f"the dataset has no rows of {value}", hint="mallorn dataset stats")


def _between(after_id: int, upto: int) -> tuple[ColumnElement[bool], ...]:
    return Measurement.id > after_id, Measurement.id <= upto


def _filters(selection: Selection) -> list[tuple[InstrumentedAttribute[str], str]]:
    columns = (TargetRow.text, selection.target), (Workload.op, selection.op), (Job.model_id, selection.model)
    return [(column, value) for column, value in columns if value is not None]


def _query(window: Subquery) -> Select[*tuple[Any, ...]]:
    row, columns = Measurement, class_mapper(Measurement).column_attrs
    return (
        select(
            *(column.class_attribute for column in columns if column.key not in _LEFT_OUT),
            SourceDataset.key.label("source"),
            TargetRow.text.label("target"),
            SketchRow.key.label("sketch"),
            Workload.key.label("workload"),
            Workload.op,
            Workload.flops,
            _MODEL.label("model"),
        )
        .join(window, window.c.id == row.id)
        .join(Workload, Workload.id == row.workload_id)
        .join(TargetRow, TargetRow.id == row.target_id)
        .join(SketchRow, SketchRow.id == row.sketch_id)
        .join(SourceDataset, SourceDataset.id == row.source_id, isouter=True)
        .join(Job, Job.id == row.job_id, isouter=True)
    )
