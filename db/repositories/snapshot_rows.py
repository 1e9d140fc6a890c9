"""Measurements by id, page by page, with names that mean the same in every dataset."""

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
        """Return the selection that `as_dict` wrote."""
        return cls(**values)

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.as_dict().items()) or "everything"


_MODEL: Final = case((~Job.private, Job.model_id))  # hides that a private job used a known program


class SnapshotRows(Repository):
    """Reads rows below a mark, to which none is added later. Leaves out rows of private programs."""

    def settled_mark(self) -> int:
        """Return the newest id below which no more rows can be committed. Needs a write transaction."""
        if self.session.get_bind().dialect.name == "postgresql":
            # Rows get their ids before the commit: wait briefly for transactions that have
            # some. The lock excludes itself, because two holders that then write rows would
            # wait for each other.
            self.session.execute(text("LOCK TABLE measurements IN SHARE ROW EXCLUSIVE MODE"))
        return self.session.scalar(select(func.coalesce(func.max(Measurement.id), 0))) or 0

    def page_end(self, after: int, upto: int, size: int) -> int | None:
        """Return the last id of the next `size` rows, matching or not; None if there are none."""
        ids = select(Measurement.id).where(*_between(after, upto)).order_by(Measurement.id).limit(size)
        end: int | None = self.session.scalar(select(func.max(ids.subquery().c.id)))
        return end

    def page(self, selection: Selection, after: int, upto: int) -> Columns:
        """Return the selected rows with ids above `after` up to `upto`, in the order of their ids.

        The columns are those of measurements except job, round and device, and names of
        related rows: `source` (null: measured here), `workload`, `op`, `flops`, `target`,
        `sketch` and `model`.
        """
        # With this limit both databases use the index of the ids.
        ids = select(Measurement.id).where(*_between(after, upto)).order_by(Measurement.id)
        window = ids.limit(upto - after).subquery()
        query = _query(window).where(shared(), *(column == value for column, value in _filters(selection)))
        if selection.model is not None:
            query = query.where(~Job.private)
        if selection.since is not None:
            query = query.where(Measurement.created_at >= selection.since)
        if selection.until is not None:
            query = query.where(Measurement.created_at < selection.until)
        return Columns.of(self.session.execute(query.order_by(window.c.id)))

    def contexts(self) -> dict[int, Context]:
        """Return every measuring context by id."""
        return {context.id: context for context in self.session.scalars(select(Context))}

    def check(self, selection: Selection) -> None:
        """Raise NotFound for a target, operator or model that does not exist, most likely a typing error."""
        for column, value in _filters(selection):
            if self.session.scalar(select(column).where(column == value).limit(1)) is None:
                raise NotFound(f"nothing in the dataset is of {value}", hint="mallorn dataset stats")


def _between(after: int, upto: int) -> tuple[ColumnElement[bool], ...]:
    return Measurement.id > after, Measurement.id <= upto


def _filters(selection: Selection) -> list[tuple[InstrumentedAttribute[str], str]]:
    columns = (TargetRow.text, selection.target), (Workload.op, selection.op), (Job.model_id, selection.model)
    return [(column, value) for column, value in columns if value is not None]


def _query(window: Subquery) -> Select[*tuple[Any, ...]]:
    row = Measurement
    return (
        select(
            *(row.id, row.kind, row.slot, row.outcome, row.latency_us, row.error, row.origin),
            *(
                row.bound_us,
                row.disturbed,
                row.predicted,
                row.build_ms,
                row.run_ms,
                row.created_at,
                row.decisions,
                row.run_us,
            ),
            *(row.workload_id, row.context_id, row.sketch_id, row.source_row),
            *(
                SourceDataset.key.label("source"),
                TargetRow.text.label("target"),
                SketchRow.key.label("sketch"),
            ),
            *(Workload.key.label("workload"), Workload.op, Workload.flops, _MODEL.label("model")),
        )
        .join(window, window.c.id == row.id)
        .join(Workload, Workload.id == row.workload_id)
        .join(TargetRow, TargetRow.id == row.target_id)
        .join(SketchRow, SketchRow.id == row.sketch_id)
        .join(SourceDataset, SourceDataset.id == row.source_id, isouter=True)
        .join(Job, Job.id == row.job_id, isouter=True)
    )
