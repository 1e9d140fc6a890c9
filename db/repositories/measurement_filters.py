"""SQL conditions on measurements that queries share, such as for valid times and for failures."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, ScalarSelect, and_, case, exists, func, literal_column, or_, select
from sqlalchemy.orm import InstrumentedAttribute, aliased

from mallorn.core.job_options import JobOptions
from mallorn.core.outcomes import NOT_COMPILED, Outcome
from mallorn.core.states import OFF, WRITE, MeasurementKind, RoundState
from mallorn.db.repositories.base import is_owned_by
from mallorn.db.tables import Job, Measurement, Round, Task, Workload

_Refuted = aliased(Measurement, name="refuted")
_Finder = aliased(Job, name="finder")
_Owner = aliased(Job, name="measured_by")
_Withheld = aliased(Job, name="withheld")


Owner = str | InstrumentedAttribute[str]  # an owner's name, or the column that holds it
BUILD_FAILURES: Final = (Outcome.BUILD_ERROR, Outcome.BUILD_TIMEOUT)
IMPORTED: Final = (MeasurementKind.FOREIGN, MeasurementKind.FOREIGN_FINISH)


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """The builder of a job's candidates, and the time limits of their steps."""

    builder: str
    build_sec: float
    run_sec: float


def failed_under_other_limits(own: TrialLimits) -> ColumnElement[bool]:
    """Return the SQL condition for failures that may not recur in a job with these limits.

    These are build failures of another builder, and timeouts under a shorter limit. A build
    failure applies to all measuring contexts, so its builder is compared as well.
    """
    is_unmeasured = Measurement.context_id.is_(None)
    is_by_other_builder = and_(
        is_unmeasured,
        Measurement.outcome.in_(BUILD_FAILURES),
        func.coalesce(Measurement.built_by, "") != own.builder,
    )
    has_shorter_limit = and_(
        is_unmeasured,
        Measurement.outcome == Outcome.BUILD_TIMEOUT,
        func.coalesce(Measurement.limit_sec, 0.0) < own.build_sec,
    )
    return or_(is_by_other_builder, has_shorter_limit, _timed_out_under(own.run_sec))


def was_given_usual_time() -> ColumnElement[bool]:
    """Return the condition that excludes timeouts under a limit shorter than the default."""
    defaults = JobOptions()
    is_early_build_timeout = and_(
        Measurement.outcome == Outcome.BUILD_TIMEOUT,
        func.coalesce(Measurement.limit_sec, defaults.build_timeout_sec) < defaults.build_timeout_sec,
    )
    return ~or_(is_early_build_timeout, _timed_out_under(defaults.run_timeout_sec))


def _timed_out_under(run_sec: float) -> ColumnElement[bool]:
    has_shorter_limit = func.coalesce(Measurement.limit_sec, run_sec) < run_sec
    return and_(Measurement.outcome == Outcome.RUN_TIMEOUT, has_shorter_limit)


def is_eligible(reader: Owner | None) -> ColumnElement[bool]:
    """Return the condition for times measured here of candidates that are not refuted."""
    return and_(Measurement.kind.not_in(IMPORTED), is_not_refuted(reader))


def is_bound_only(reader: Owner | None) -> ColumnElement[bool]:
    """Return the condition for unrefuted rows measured here with only an upper bound."""
    is_own = Measurement.kind.not_in(IMPORTED)
    return and_(is_own, Measurement.bound_us.is_not(None), ~_refuted(reader))


def is_imported(reader: Owner | None) -> ColumnElement[bool]:
    """Return the condition for imported times of candidates that are not refuted."""
    return and_(Measurement.kind.in_(IMPORTED), is_not_refuted(reader))


def is_not_refuted(reader: Owner | None) -> ColumnElement[bool]:
    """Return the condition for times of candidates that are not refuted for this owner."""
    return and_(Measurement.latency_us.is_not(None), ~_refuted(reader))


def is_same_candidate(one: type[Measurement], other: type[Measurement]) -> ColumnElement[bool]:
    """Return the condition that two measurements are of one candidate on one target."""
    columns = Measurement.workload_id, Measurement.target_id, Measurement.sketch_id, Measurement.decisions
    return and_(*(getattr(one, column.key) == getattr(other, column.key) for column in columns))


def _refuted(reader: Owner | None) -> ColumnElement[bool]:
    """Return the condition that a candidate's wrong results count for a reader (ADR 0101).

    One owner's wrong result counts for that owner, and for times of that owner's jobs. It
    counts for all once another owner's job agrees. Imported rows' owner is the empty name.
    """
    # A literal, so that SQLite uses the partial index of refuted candidates.
    is_wrong = _Refuted.outcome == literal_column(f"'{Outcome.WRONG_RESULT}'")
    finder = func.coalesce(_Finder.owner, "")
    owners = select(_Owner.owner).where(_Owner.id == Measurement.job_id).correlate(Measurement)
    believers = [func.coalesce(owners.scalar_subquery(), ""), *([] if reader is None else [reader])]
    is_believed = func.max(case((finder.in_(believers), 1), else_=0)) == 1
    query = (
        select(func.count())
        .select_from(_Refuted)
        .outerjoin(_Finder, _Finder.id == _Refuted.job_id)
        .where(is_same_candidate(_Refuted, Measurement), is_wrong)
        .group_by(_Refuted.workload_id)
        .having(or_(func.min(finder) != func.max(finder), is_believed))
    )
    return exists(query.correlate_except(_Refuted, _Finder))


def is_shared() -> ColumnElement[bool]:
    """Return the condition for rows that all owners may read; queries must join Workload."""
    return and_(Measurement.id > Workload.kept_upto, is_contributed())


def is_contributed() -> ColumnElement[bool]:
    """Return the condition for imported rows and those of jobs that write to the dataset."""
    # A literal, so that SQLite uses the partial index of such jobs.
    withheld = select(_Withheld.id).where(_Withheld.dataset != literal_column(f"'{WRITE}'"))
    return func.coalesce(Measurement.job_id, "").not_in(withheld)


def is_shown_to(owner: str | None) -> ColumnElement[bool]:
    """Return the condition for times that an owner may read: shared ones and those of the
    owner's jobs; all if `owner` is None. Queries must join Workload."""
    own_jobs = select(Job.id).where(is_owned_by(owner))
    return and_(is_not_refuted(owner), or_(is_shared(), Measurement.job_id.in_(own_jobs)))


def is_readable_by(job: Job | type[Job]) -> ColumnElement[bool]:
    """Return the condition for rows that the job's option `dataset` lets the job use."""
    return or_(Measurement.job_id == job.id, and_(func.coalesce(job.dataset, WRITE) != OFF, is_contributed()))


def is_not_withdrawn() -> ColumnElement[bool]:
    """Return the condition that excludes withdrawn measurements, as if never tried."""
    return Measurement.outcome != Outcome.WITHDRAWN


def is_undisturbed() -> ColumnElement[bool]:
    """Return the condition that excludes rows whose time is only an upper bound."""
    return Measurement.bound_us.is_(None)


def is_usable_by_job() -> ColumnElement[bool]:
    """Return the condition for rows that the job may read, of its measuring context if it has one."""
    is_same_context = or_(Job.context_id.is_(None), Measurement.context_id == Job.context_id)
    return and_(is_same_context, is_readable_by(Job))


def best_of_task(*conditions: ColumnElement[bool]) -> ScalarSelect[float | None]:
    """Return the subquery for the best latency of a task on its job's target that the job may read.

    Times of unfinished rounds do not count yet, because they may still turn into upper bounds.
    """
    same_program = Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id
    running = Round.id == Measurement.round_id, Round.state == RoundState.LEASED
    usable = (
        *same_program,
        is_eligible(Job.owner),
        is_usable_by_job(),
        ~exists(select(Round.id).where(*running)),
    )
    query = select(Measurement.latency_us).where(*usable, *conditions)
    return query.order_by(Measurement.latency_us).limit(1).correlate(Task, Job).scalar_subquery()


def was_left_unbuilt() -> ColumnElement[bool]:
    """Return the condition for candidates not compiled on purpose: they unroll too far."""
    text = func.coalesce(Measurement.error, "")
    return and_(Measurement.outcome == Outcome.BUILD_ERROR, text.startswith(NOT_COMPILED, autoescape=True))


def has_failed() -> ColumnElement[bool]:
    """Return the condition for failures, except candidates that were left unbuilt."""
    return and_(Measurement.outcome != Outcome.OK, ~was_left_unbuilt())
