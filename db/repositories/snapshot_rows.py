"""Measurements in the order of their ids, page by page, with the names that mean the same elsewhere."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from sqlalchemy import ColumnElement, Select, Subquery, case, func, select, text
from sqlalchemy.orm import InstrumentedAttribute

from db.columnar_rows import Columns
from db.repositories.base import Repository
from db.repositories.measurement_filters import shared
from db.tables import Context, Job, Measurement, SketchRow, SourceDataset, TargetRow, Workload
from mallorn.core.errors import NotFound


@dataclass(frozen=True, slots=True)
class Selection:
    """All fields that are not None must match; without any, every measurement does."""

    target: str | None = None  # canonical JSON
    op: str | None = None  # Workload.op
    model: str | None = None  # the SHA-256 of the network whose job measured it
    since: float | None = None  # seconds since the epoch, included
    until: float | None = None  # not included

    def as_dict(self) -> dict[str, object]:
        """The fields that are set, for a JSON column."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The selection that as_dict wrote."""
        return cls(**values)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.as_dict().items()) or "everything"


_MODEL: Final = case((~Job.private, Job.model_id))  # nobody is told that a private job met a known program


class SnapshotRows(Repository):
    """Reads what no one changes any more: rows are only ever added. Rows of private programs are left out."""

    def settled_mark(self) -> int:
        """The newest id below which no transaction can still commit a row. Needs a writing transaction."""
        if self.session.get_bind().dialect.name == "postgresql":
            # Ids are handed out before the commit: wait for those who hold some, for an instant. One at a
            # time: two who share this lock, and write rows then, would wait for each other.
            self.session.execute(text("LOCK TABLE measurements IN SHARE ROW EXCLUSIVE MODE"))
        return self.session.scalar(select(func.coalesce(func.max(Measurement.id), 0))) or 0

    def page_end(self, after: int, upto: int, size: int) -> int | None:
        """The last id of the next `size` rows, selected or not; None when there are none."""
        ids = select(Measurement.id).where(*_between(after, upto)).order_by(Measurement.id).limit(size)
        end: int | None = self.session.scalar(select(func.max(ids.subquery().c.id)))
        return end

    def page(self, selection: Selection, after: int, upto: int) -> Columns:
        """The selected rows above `after` up to `upto`, in the order of their ids.

        All that a measurement's table has but its job, its round and its device, and the names of what it
        points to: `source` (null: measured here), `workload`, `op`, `flops`, `target`, `sketch` and `model`.
        """
        # The limit keeps both databases from starting at another end than the ids.
        ids = select(Measurement.id).where(*_between(after, upto)).order_by(Measurement.id)
        window = ids.limit(upto - after).subquery()
        query = _named(window).where(shared(), *(column == value for column, value in _wanted(selection)))
        if selection.model is not None:
            query = query.where(~Job.private)
        if selection.since is not None:
            query = query.where(Measurement.created_at >= selection.since)
        if selection.until is not None:
            query = query.where(Measurement.created_at < selection.until)
        return Columns.of(self.session.execute(query.order_by(window.c.id)))

    def contexts(self) -> dict[int, Context]:
        """Every measuring context."""
        return {context.id: context for context in self.session.scalars(select(Context))}

    def check(self, selection: Selection) -> None:
        """Raise NotFound for a target, operator or model that no row could have: mistyped, most likely."""
        for column, value in _wanted(selection):
            if self.session.scalar(select(column).where(column == value).limit(1)) is None:
                raise NotFound(f"nothing in the dataset is of {value}", hint="mallorn dataset stats")


def _between(after: int, upto: int) -> tuple[ColumnElement[bool], ...]:
    return Measurement.id > after, Measurement.id <= upto


def _wanted(selection: Selection) -> list[tuple[InstrumentedAttribute[str], str]]:
    columns = (TargetRow.text, selection.target), (Workload.op, selection.op), (Job.model_id, selection.model)
    return [(column, value) for column, value in columns if value is not None]


def _named(window: Subquery) -> Select[*tuple[Any, ...]]:
    found = Measurement
    return (
        select(
            *(found.id, found.kind, found.slot, found.outcome, found.latency_us, found.error, found.origin),
            *(
                found.bound_us,
                found.disturbed,
                found.predicted,
                found.build_ms,
                found.run_ms,
                found.created_at,
                found.decisions,
                found.run_us,
            ),
            *(found.workload_id, found.context_id, found.sketch_id, found.source_row),
            *(
                SourceDataset.key.label("source"),
                TargetRow.text.label("target"),
                SketchRow.key.label("sketch"),
            ),
            *(Workload.key.label("workload"), Workload.op, Workload.flops, _MODEL.label("model")),
        )
        .join(window, window.c.id == found.id)
        .join(Workload, Workload.id == found.workload_id)
        .join(TargetRow, TargetRow.id == found.target_id)
        .join(SketchRow, SketchRow.id == found.sketch_id)
        .join(SourceDataset, SourceDataset.id == found.source_id, isouter=True)
        .join(Job, Job.id == found.job_id, isouter=True)
    )
