"""Statements that must hold for the stored rows at any time. Each check is one query for the rows that
break it, so it sees one state of the database, whatever others commit meanwhile.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Text, and_, cast, exists, func, or_, select, true
from sqlalchemy.orm import InstrumentedAttribute

from mallorn.core.outcomes import Outcome
from mallorn.core.states import FINAL, MeasurementKind, RoundState, WorkKind
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository
from mallorn.db.tables import Event, Job, LeaseRow, Measurement, Round, Schedule

NAMED: Final = 5  # rows that are named of those that break an invariant
OPEN: Final = [state for state in RoundState if state.is_open]
Broken = Mapping[str, list[str]]  # by invariant, some of the rows that break it


class Invariants(Repository):
    """Checks of all jobs' rows, or only of jobs that have not ended or ended lately."""

    def find_broken(self, ended_sec: float | None = None) -> Broken:
        """Return the invariants that do not hold. With `ended_sec`, jobs that ended earlier
        than so many seconds ago are left out."""
        is_looked_at: ColumnElement[bool] = true()
        if ended_sec is not None:
            is_looked_at = or_(Job.finished_at.is_(None), Job.finished_at > now() - ended_sec)
        found = {text: self._some_of(query.where(is_looked_at)) for text, query in QUERIES.items()}
        return {text: rows for text, rows in found.items() if rows}

    def _some_of(self, query: Select[tuple[str]]) -> list[str]:
        return list(self.session.scalars(query.limit(NAMED)))


def _named(kind: str, column: InstrumentedAttribute[Any]) -> Select[tuple[str]]:
    return select(kind + " " + cast(column, Text))


def _trials_of_rounds() -> Select[tuple[str]]:
    query = _named("round", Round.id).join(Job, Job.id == Round.job_id)
    return query.join(Measurement, _is_trial_of_round()).group_by(Round.id, Round.size)


def _is_trial_of_round() -> ColumnElement[bool]:
    return and_(Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL)


_LEASE: Final = and_(LeaseRow.kind == WorkKind.ROUND, LeaseRow.subject == cast(Round.id, Text))
_CLAIMABLE: Final = or_(LeaseRow.until.is_not(None), LeaseRow.due_at.is_not(None))
_ROUNDS: Final = _named("round", Round.id).join(Job, Job.id == Round.job_id)
_TRIALS: Final = (
    _named("measurement", Measurement.id)
    .join(Job, Job.id == Measurement.job_id)
    .where(Measurement.kind == MeasurementKind.TRIAL)
)
_SPENT: Final = select(func.count(Measurement.id)).where(
    Measurement.job_id == Job.id, Measurement.kind == MeasurementKind.TRIAL
)
_HAS_TIME: Final = or_(Measurement.latency_us.is_not(None), Measurement.bound_us.is_not(None))
#: By invariant, the query for the rows that break it; the jobs' table is in each.
QUERIES: Final[Mapping[str, Select[tuple[str]]]] = {
    "a trial has a round of its job": _TRIALS.outerjoin(Round, Round.id == Measurement.round_id).where(
        Round.job_id.is_distinct_from(Measurement.job_id)
    ),
    "a successful trial has a time, another has none": _TRIALS.where(
        (Measurement.outcome == Outcome.OK) != _HAS_TIME
    ),
    "a round has no more trials than candidates": _trials_of_rounds().having(
        func.count(Measurement.id) > Round.size
    ),
    "a round has each candidate once": _trials_of_rounds()
    .group_by(Measurement.sketch_id, Measurement.decisions)
    .having(func.count(Measurement.id) > 1),
    "an open round is held or can be claimed": _ROUNDS.where(
        Round.state.in_(OPEN), ~Round.detached, ~exists().where(_LEASE, _CLAIMABLE)
    ),
    "a round that is over is held by nobody": _ROUNDS.where(
        Round.state.not_in(OPEN), exists().where(_LEASE, _CLAIMABLE)
    ),
    "a settled round is not open": _ROUNDS.where(Round.settled, Round.state.in_(OPEN)),
    "a job that has ended has no open round": _ROUNDS.where(Job.state.in_(FINAL), Round.state.in_(OPEN)),
    "a job has a time of its end exactly if it has ended": _named("job", Job.id).where(
        Job.finished_at.is_not(None) != Job.state.in_(FINAL)
    ),
    "a job spends no more trials than its budget": _named("job", Job.id).where(
        _SPENT.scalar_subquery() > Job.trials
    ),
    "a job's events are counted": _named("job", Job.id).where(
        exists().where(Event.job_id == Job.id, Event.seq > Job.event_count)
    ),
    "a schedule is a timed measurement of its workload and target": _named("schedule", Schedule.id)
    .join(Job, Job.id == Schedule.job_id)
    .join(Measurement, Measurement.id == Schedule.measurement_id)
    .where(
        or_(
            Measurement.workload_id != Schedule.workload_id,
            Measurement.target_id != Schedule.target_id,
            Measurement.context_id.is_distinct_from(Schedule.context_id),
            Measurement.outcome != Outcome.OK,
        )
    ),
}
