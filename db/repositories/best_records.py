"""The fastest measurement of every workload on a target, in each measuring context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import func, select

from db.repositories.base import Repository
from db.repositories.measurement_filters import is_not_refuted, shared
from db.repositories.measuring_contexts import is_inside_model
from db.repositories.trials import select_trials, trial_of
from db.tables import Context, Measurement, SourceDataset, Workload
from mallorn.core.states import MeasurementKind
from mallorn.core.values.trial import Trial

_AGAIN: Final = (MeasurementKind.FINISH, MeasurementKind.FOREIGN_FINISH)


@dataclass(frozen=True, slots=True)
class BestRecord:
    """A measurement, with fields that identify it in other datasets."""

    op: str
    workload_id: int
    name: str
    context_id: int
    dataset: str
    row: int
    created_at: float
    trial: Trial


class BestRecords(Repository):
    """Reads measurements of all owners, except those of private programs."""

    def knows(self, dataset: str, row: int) -> bool:
        """Return whether row `row` of the dataset with key `dataset`, ours or another, is stored here."""
        source = self.session.scalars(select(SourceDataset).where(SourceDataset.key == dataset)).one_or_none()
        if source is None:
            return False
        own_row = Measurement.id == row, Measurement.source_id.is_(None)
        imported_row = Measurement.source_row == row, Measurement.source_id == source.id
        query = select(Measurement.id).where(*(own_row if source.own else imported_row)).limit(1)
        return self.session.scalar(query) is not None

    def of_target(self, target_id: int, own: str) -> Sequence[BestRecord]:
        """Return the best records by operator, workload key and latency; `own` is this dataset's key.

        Repeated times of a finish come before trials, which may be short by chance. Times
        inside a model are left out if the workload was timed outside one, as TVM would compare both.
        """
        place = func.row_number().over(
            partition_by=(Measurement.workload_id, Measurement.context_id),
            order_by=(Measurement.kind.not_in(_AGAIN), Measurement.latency_us, Measurement.id),
        )
        conditions = Measurement.target_id == target_id, Measurement.context_id.is_not(None), is_not_refuted()
        places = (
            select(Measurement.id, place.label("place"))
            .join(Workload, Workload.id == Measurement.workload_id)
            .where(*conditions, shared())
            .subquery()
        )
        columns = {
            "op": Workload.op,
            "workload_id": Measurement.workload_id,
            "name": Workload.name,
            "context_id": Measurement.context_id,
            "dataset": func.coalesce(SourceDataset.key, own),
            "row": func.coalesce(Measurement.source_row, Measurement.id),
            "created_at": Measurement.created_at,
        }
        query = (
            select_trials(Measurement.run_us, *(column.label(name) for name, column in columns.items()))
            .join(places, places.c.id == Measurement.id)
            .join(Workload, Workload.id == Measurement.workload_id)
            .join(Context, Context.id == Measurement.context_id)
            .add_columns(Context.evaluator)
            .outerjoin(SourceDataset, SourceDataset.id == Measurement.source_id)
            .where(places.c.place == 1)
            .order_by(Workload.op, Workload.key, Measurement.latency_us, Context.key)
        )
        rows = self.session.execute(query).all()
        timed_outside = {row.workload_id for row in rows if not is_inside_model(row.evaluator)}
        return [
            BestRecord(**{name: row._mapping[name] for name in columns}, trial=trial_of(row))
            for row in rows
            if not is_inside_model(row.evaluator) or row.workload_id not in timed_outside
        ]
