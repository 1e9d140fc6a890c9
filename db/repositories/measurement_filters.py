"""Conditions on measurements that all queries share: the best, what is sound, what failed."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, ScalarSelect, and_, exists, func, literal_column, not_, or_, select
from sqlalchemy.orm import aliased

from db.tables import Job, Measurement, Round, Task, Workload
from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import NOT_COMPILED, Outcome
from mallorn.core.states import MeasurementKind, RoundState

_Refuted = aliased(Measurement, name="refuted")


BUILD_FAILURES: Final = (Outcome.BUILD_ERROR, Outcome.BUILD_TIMEOUT)
IMPORTED: Final = (MeasurementKind.FOREIGN, MeasurementKind.FOREIGN_FINISH)


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """The builder of a job's candidates, and the time limits of their steps."""

    builder: str
    build_sec: float
    run_sec: float


def failed_under_other_limits(own: TrialLimits) -> ColumnElement[bool]:
    """Whether a row is a failure that says nothing to a job with these limits.

    So is a failure to build by another builder, and a time-out under a shorter limit. Builds that never
    reached a device count in all contexts, so their builder and limit have to be known.
    """
    unmeasured = Measurement.context_id.is_(None)
    by_another = and_(
        unmeasured,
        Measurement.outcome.in_(BUILD_FAILURES),
        func.coalesce(Measurement.built_by, "") != own.builder,
    )
    in_less = and_(
        unmeasured,
        Measurement.outcome == Outcome.BUILD_TIMEOUT,
        func.coalesce(Measurement.limit_sec, 0.0) < own.build_sec,
    )
    return or_(by_another, in_less, _ran_less_than(own.run_sec))


def was_given_usual_time() -> ColumnElement[bool]:
    """Whether a row is no time-out under a limit below the default, of which shared models learn nothing."""
    usual = JobOptions()
    built_less = and_(
        Measurement.outcome == Outcome.BUILD_TIMEOUT,
        func.coalesce(Measurement.limit_sec, usual.build_timeout_sec) < usual.build_timeout_sec,
    )
    return not_(or_(built_less, _ran_less_than(usual.run_timeout_sec)))


def _ran_less_than(run_sec: float) -> ColumnElement[bool]:
    less = func.coalesce(Measurement.limit_sec, run_sec) < run_sec
    return and_(Measurement.outcome == Outcome.RUN_TIMEOUT, less)


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
    """The best latency of the enclosing query's task on its job's target, across the whole dataset.

    A time of a round that goes on does not count yet: it may still turn out to be a bound.
    """
    same_program = Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id
    goes_on = exists(
        select(Round.id).where(Round.id == Measurement.round_id, Round.state == RoundState.LEASED)
    )
    query = select(Measurement.latency_us).where(
        *same_program, eligible(), is_same_context(), ~goes_on, *conditions
    )
    return query.order_by(Measurement.latency_us).limit(1).correlate(Task, Job).scalar_subquery()


def left_unbuilt() -> ColumnElement[bool]:
    """Whether a candidate was left unbuilt because it unrolls too far: a choice, and no failure."""
    text = func.coalesce(Measurement.error, "")
    return and_(Measurement.outcome == Outcome.BUILD_ERROR, text.startswith(NOT_COMPILED, autoescape=True))


def failed() -> ColumnElement[bool]:
    """Whether the row tells of a failure."""
    return and_(Measurement.outcome != Outcome.OK, not_(left_unbuilt()))
