"""Measurements for a recording: the trials of a workload, including failures."""

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
        """Return the tasks with shared trials, in the order of their first trial."""
        key = Measurement.workload_id, Measurement.target_id, Measurement.context_id
        query = select(*key).join(Workload, Workload.id == Measurement.workload_id)
        query = query.where(_is_trial(), Measurement.context_id.is_not(None), shared())
        rows = self.session.execute(query.group_by(*key).order_by(func.min(Measurement.id)))
        return [MeasuredTask(task, target, context) for task, target, context in rows if context is not None]

    def trials(self, of: MeasuredTask) -> Sequence[Trial]:
        """Return a task's trials, oldest first; trials that reached no device belong to all contexts."""
        same_task = Measurement.workload_id == of.workload_id, Measurement.target_id == of.target_id
        is_in_context = or_(Measurement.context_id == of.context_id, Measurement.context_id.is_(None))
        query = (
            select_trials(Measurement.run_us, Measurement.error)
            .join(Workload, Workload.id == Measurement.workload_id)
            .where(*same_task, is_in_context, _is_trial(), shared(), is_not_withdrawn(), undisturbed())
            .order_by(Measurement.id)
        )
        return [trial_of(row) for row in self.session.execute(query)]

    def devices(self) -> Sequence[Device]:
        """Return the devices that have measured anything, by name."""
        measured = select(Measurement.device_id).where(Measurement.device_id.is_not(None)).distinct()
        return self.session.scalars(select(Device).where(Device.id.in_(measured)).order_by(Device.name)).all()


def _is_trial() -> ColumnElement[bool]:
    return Measurement.kind == MeasurementKind.TRIAL
