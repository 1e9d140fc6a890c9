"""Conditions on measurements that all queries share: the best, what is sound, what failed."""

from typing import Final

from sqlalchemy import ColumnElement, ScalarSelect, and_, exists, func, literal_column, not_, or_, select
from sqlalchemy.orm import aliased

from db.tables import Job, Measurement, Task, Workload
from mallorn.core.outcomes import NOT_COMPILED, Outcome
from mallorn.core.states import MeasurementKind

_Refuted = aliased(Measurement, name="refuted")


IMPORTED: Final = (MeasurementKind.FOREIGN, MeasurementKind.FOREIGN_FINISH)


def eligible() -> ColumnElement[bool]:
    """Timed here, and no measurement of the same candidate found its results wrong."""
    return and_(Measurement.kind.not_in(IMPORTED), is_not_refuted())


def bounded() -> ColumnElement[bool]:
    """Ran here while others had its processors, and was not found wrong."""
    return and_(Measurement.kind.not_in(IMPORTED), Measurement.bound_us.is_not(None), ~_refuted())


def is_imported() -> ColumnElement[bool]:
    """Timed elsewhere and not found wrong; it may not be as fast here."""
    return and_(Measurement.kind.in_(IMPORTED), is_not_refuted())


def is_not_refuted() -> ColumnElement[bool]:
    """Timed, and no measurement of the same candidate found its results wrong."""
    return and_(Measurement.latency_us.is_not(None), ~_refuted())


def _refuted() -> ColumnElement[bool]:
    same_candidate = and_(
        _Refuted.workload_id == Measurement.workload_id,
        _Refuted.target_id == Measurement.target_id,
        # Spelled out, so that SQLite uses the partial index of refuted candidates.
        _Refuted.outcome == literal_column(f"'{Outcome.WRONG_RESULT}'"),
        _Refuted.sketch_id == Measurement.sketch_id,
        _Refuted.decisions == Measurement.decisions,
    )
    return exists(select(_Refuted.id).where(same_candidate).correlate(Measurement))


def shared() -> ColumnElement[bool]:
    """For everybody to read, as rows are that were not measured for private jobs alone; joins workloads."""
    return Measurement.id > Workload.kept_upto


def is_not_withdrawn() -> ColumnElement[bool]:
    """Not taken back with the device that measured it; then it was as if nobody had tried it."""
    return Measurement.outcome != Outcome.WITHDRAWN


def undisturbed() -> ColumnElement[bool]:
    """A time, or a failure, and no mere bound: who looks for what is known does not find one."""
    return Measurement.bound_us.is_(None)


def is_same_context() -> ColumnElement[bool]:
    """In the job's measuring context; a job without one yet takes every context as a hint."""
    return or_(Job.context_id.is_(None), Measurement.context_id == Job.context_id)


def best_of_task(*conditions: ColumnElement[bool]) -> ScalarSelect[float | None]:
    """The best latency of the enclosing query's task on its job's target, across the whole dataset."""
    same_program = Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id
    query = select(Measurement.latency_us).where(*same_program, eligible(), is_same_context(), *conditions)
    return query.order_by(Measurement.latency_us).limit(1).correlate(Task, Job).scalar_subquery()


def left_unbuilt() -> ColumnElement[bool]:
    """Whether a candidate was left unbuilt because it unrolls too far: a choice, and no failure."""
    text = func.coalesce(Measurement.error, "")
    return and_(Measurement.outcome == Outcome.BUILD_ERROR, text.startswith(NOT_COMPILED, autoescape=True))


def failed() -> ColumnElement[bool]:
    """Whether the row tells of a failure."""
    return and_(Measurement.outcome != Outcome.OK, not_(left_unbuilt()))
