"""What a recording is made of: every first measurement of the candidates of a workload, failures included."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, func, or_, select

from db.codec import unpack_decisions, unpack_times
from db.repositories.base import Repository
from db.repositories.best import believed, shared, undisturbed
from db.tables import Context, Device, Measurement, SketchRow, TargetRow, Workload
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    """A workload on a target in one measuring context."""

    workload_id: int
    target_id: int
    context_id: int


class Recordings(Repository):
    """Reads whole tasks."""

    def measured(self) -> Sequence[MeasuredTask]:
        """All that was measured here and is everybody's, in the order it was first met."""
        same = Measurement.workload_id, Measurement.target_id, Measurement.context_id
        query = select(*same).join(Workload, Workload.id == Measurement.workload_id)
        query = query.where(_is_trial(), Measurement.context_id.is_not(None), shared())
        rows = self.session.execute(query.group_by(*same).order_by(func.min(Measurement.id)))
        return [MeasuredTask(task, on, context) for task, on, context in rows if context is not None]

    def trials(self, of: MeasuredTask) -> Sequence[Trial]:
        """Oldest first; what never reached a device belongs to every context."""
        return [_trial(row) for row in self.session.execute(_full_trials(of))]

    def context(self, context_id: int) -> Mapping[str, object]:
        """The facts that must be equal for two times to compare."""
        found = self.session.get_one(Context, context_id)
        return {
            "host_class": found.host_class,
            "tvm_version": found.tvm_version,
            "threads": found.threads,
            "evaluator": found.evaluator,
        }

    def target(self, target_id: int) -> str:
        """A target, as canonical JSON."""
        return self.session.get_one(TargetRow, target_id).text

    def devices(self) -> Sequence[Device]:
        """The devices that measured anything, in the order of their names."""
        measured = select(Measurement.device_id).where(Measurement.device_id.is_not(None)).distinct()
        return self.session.scalars(select(Device).where(Device.id.in_(measured)).order_by(Device.name)).all()


def _full_trials(of: MeasuredTask) -> Select[*tuple[Any, ...]]:
    columns = (
        SketchRow.key,
        Measurement.decisions,
        Measurement.outcome,
        Measurement.latency_us,
        Measurement.run_us,
        Measurement.build_ms,
        Measurement.origin,
        Measurement.error,
    )
    return (
        select(*columns)
        .join(SketchRow, SketchRow.id == Measurement.sketch_id)
        .join(Workload, Workload.id == Measurement.workload_id)
        .where(shared())
        .where(Measurement.workload_id == of.workload_id, Measurement.target_id == of.target_id, _is_trial())
        .where(or_(Measurement.context_id == of.context_id, Measurement.context_id.is_(None)))
        .where(believed(), undisturbed())
        .order_by(Measurement.id)
    )


def _trial(row: Row[*tuple[Any, ...]]) -> Trial:
    sketch, decisions, outcome, latency_us, run_us, build_ms, origin, error = row
    return Trial(
        Candidate(sketch, unpack_decisions(decisions)),
        Outcome(outcome),
        latency_us,
        origin,
        build_ms,
        run_us=unpack_times(run_us or b""),
        error=error or "",
    )


def _is_trial() -> Any:
    return Measurement.kind == MeasurementKind.TRIAL
