"""Measurements as users see them, with the names of the rows they refer to."""

from typing import Any

from sqlalchemy import Row, select

from db.measurement_codec import unpack_decisions, unpack_times
from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository, owned
from db.tables import Device, Job, Measurement, SketchRow, TargetRow, Workload
from mallorn.core.outcomes import Outcome
from mallorn.core.values.dataset import Record


class Records(Repository):
    def page(
        self,
        owner: str | None,
        *,
        job_id: str | None = None,
        workload: str | None = None,
        target: str | None = None,
        outcome: Outcome | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Record]:
        """Return a page of an owner's measurements, newest first; `workload` and `target` are keys."""
        names = Workload.key, Workload.name, TargetRow.text, SketchRow.key, Device.name
        query = (
            select(Measurement, *names)
            .join(Workload, Workload.id == Measurement.workload_id)
            .join(TargetRow, TargetRow.id == Measurement.target_id)
            .join(SketchRow, SketchRow.id == Measurement.sketch_id)
            .join(Device, Device.id == Measurement.device_id, isouter=True)
            .order_by(Measurement.id.desc())
            .limit(check_limit(limit) + 1)
        )
        if owner is not None:
            query = query.where(Measurement.job_id.in_(select(Job.id).where(owned(owner))))
        measured = (Measurement.job_id, job_id), (Measurement.outcome, outcome)
        keys = (Workload.key, workload), (TargetRow.key, target)
        filters: list[tuple[Any, object]] = [*measured, *keys]
        query = query.where(*(column == value for column, value in filters if value is not None))
        if cursor is not None:
            query = query.where(Measurement.id < decode_cursor(cursor, int)[0])
        records = [_record(row) for row in self.session.execute(query)]
        return page(records, limit, lambda record: (record.id,))


def _record(row: Row[*tuple[Any, ...]]) -> Record:
    measurement, workload, workload_name, target, sketch, device = row
    return Record.from_row(
        measurement,
        workload=workload,
        workload_name=workload_name,
        target=target,
        sketch=sketch,
        decisions=list(unpack_decisions(measurement.decisions)),
        outcome=Outcome.read(measurement.outcome),
        run_us=list(unpack_times(measurement.run_us or b"")),
        device=device,
    )
