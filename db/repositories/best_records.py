"""The fastest record of every workload on a target, of each measuring context its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from db.codec import unpack_decisions, unpack_times
from db.repositories.base import Repository
from db.repositories.best import shared, sound
from db.tables import Context, Measurement, SketchRow, SourceDataset, Workload
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial

_AGAIN: Final = (MeasurementKind.FINISH, MeasurementKind.FOREIGN_FINISH)


@dataclass(frozen=True, slots=True)
class BestRecord:
    """A measurement, and all that names it elsewhere."""

    op: str
    workload_id: int
    name: str
    context_id: int
    dataset: str
    row: int
    created_at: float
    trial: Trial


class BestRecords(Repository):
    """Reads across owners what is everybody's."""

    def knows(self, dataset: str, row: int) -> bool:
        """Whether a record that a folder tells of is here: a row of ours, or of the dataset it came from."""
        source = self.session.scalars(select(SourceDataset).where(SourceDataset.key == dataset)).one_or_none()
        if source is None:
            return False
        ours = Measurement.id == row, Measurement.source_id.is_(None)
        theirs = Measurement.source_row == row, Measurement.source_id == source.id
        query = select(Measurement.id).where(*(ours if source.own else theirs)).limit(1)
        return self.session.scalar(query) is not None

    def of_target(self, target_id: int, own: str) -> Sequence[BestRecord]:
        """By operator, the workload's key, then the fastest context first; `own` names this dataset.

        What a finish measured again comes before any trial, which may have been lucky.
        """
        place = func.row_number().over(
            partition_by=(Measurement.workload_id, Measurement.context_id),
            order_by=(Measurement.kind.not_in(_AGAIN), Measurement.latency_us, Measurement.id),
        )
        timed = Measurement.target_id == target_id, Measurement.context_id.is_not(None), sound()
        ranked = (
            select(Measurement.id, place.label("place"))
            .join(Workload, Workload.id == Measurement.workload_id)
            .where(*timed, shared())
            .subquery()
        )
        query = (
            select(Measurement, Workload.op, Workload.name, SketchRow.key, SourceDataset.key)
            .join(ranked, ranked.c.id == Measurement.id)
            .join(Workload, Workload.id == Measurement.workload_id)
            .join(SketchRow, SketchRow.id == Measurement.sketch_id)
            .join(Context, Context.id == Measurement.context_id)
            .outerjoin(SourceDataset, SourceDataset.id == Measurement.source_id)
            .where(ranked.c.place == 1)
            .order_by(Workload.op, Workload.key, Measurement.latency_us, Context.key)
        )
        return [
            _record(found, op, name, sketch, dataset or own)
            for found, op, name, sketch, dataset in self.session.execute(query)
        ]


def _record(found: Measurement, op: str, name: str, sketch: str, dataset: str) -> BestRecord:
    candidate = Candidate(sketch, unpack_decisions(found.decisions))
    run_us = unpack_times(found.run_us or b"")
    row = found.id if found.source_row is None else found.source_row
    return BestRecord(
        op=op,
        workload_id=found.workload_id,
        name=name,
        context_id=found.context_id or 0,
        dataset=dataset,
        row=row,
        created_at=found.created_at,
        trial=Trial(candidate, Outcome.OK, found.latency_us, origin=found.origin, run_us=run_us),
    )
