"""What a recording is made of: every first measurement of the candidates of a workload, failures included."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, or_, select

from db.repositories.base import Repository
from db.repositories.measurement_filters import is_not_withdrawn, shared, undisturbed
from db.repositories.trials import select_trials, trial_of
from db.tables import Device, Measurement, Workload
from mallorn.core.states import MeasurementKind
from mallorn.core.values.trial import Trial


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """A workload on a target in one measuring context."""

    workload_id: int
    target_id: int
    context_id: int


class Recordings(Repository):
    def measured(self) -> Sequence[MeasuredTask]:
        """All that was measured here and is everybody's, in the order it was first met."""
        same = Measurement.workload_id, Measurement.target_id, Measurement.context_id
        query = select(*same).join(Workload, Workload.id == Measurement.workload_id)
        query = query.where(_is_trial(), Measurement.context_id.is_not(None), shared())
        rows = self.session.execute(query.group_by(*same).order_by(func.min(Measurement.id)))
        return [MeasuredTask(task, on, context) for task, on, context in rows if context is not None]

    def trials(self, of: MeasuredTask) -> Sequence[Trial]:
        """Oldest first; what never reached a device belongs to every context."""
        same = Measurement.workload_id == of.workload_id, Measurement.target_id == of.target_id
        there = or_(Measurement.context_id == of.context_id, Measurement.context_id.is_(None))
        query = (
            select_trials(Measurement.run_us, Measurement.error)
            .join(Workload, Workload.id == Measurement.workload_id)
            .where(*same, there, _is_trial(), shared(), is_not_withdrawn(), undisturbed())
            .order_by(Measurement.id)
        )
        return [trial_of(row) for row in self.session.execute(query)]

    def devices(self) -> Sequence[Device]:
        """The devices that measured anything, in the order of their names."""
        measured = select(Measurement.device_id).where(Measurement.device_id.is_not(None)).distinct()
        return self.session.scalars(select(Device).where(Device.id.in_(measured)).order_by(Device.name)).all()


def _is_trial() -> ColumnElement[bool]:
    return Measurement.kind == MeasurementKind.TRIAL
