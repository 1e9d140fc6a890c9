"""The decision log: a job's rounds, with the best time before each round and its result."""

from typing import Any

from sqlalchemy import ColumnElement, Row, ScalarSelect, Select, String, and_, cast, func, select

from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository
from db.repositories.measurement_filters import eligible, failed, is_same_context
from db.tables import CostModelRow, Job, LeaseRow, Measurement, Round, Task
from mallorn.core.cost_model_name import CostModelName
from mallorn.core.states import MeasurementKind, RoundState, WorkKind
from mallorn.core.values.decision_log import RoundForecast, RoundStatus


class DecisionLog(Repository):
    def list(
        self,
        job_id: str,
        *,
        task_index: int | None = None,
        oldest_first: bool = False,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[RoundStatus]:
        """Return a page of a job's or a task's rounds, in planning order or newest first."""
        query = _decisions().where(Round.job_id == job_id)
        if task_index is not None:
            query = query.where(Task.index == task_index)
        if cursor is not None:
            last = decode_cursor(cursor, int)[0]
            query = query.where(Round.index > last if oldest_first else Round.index < last)
        order = Round.index.asc() if oldest_first else Round.index.desc()
        rows = self.session.execute(query.order_by(order).limit(check_limit(limit) + 1))
        return page([_status(row) for row in rows], limit, lambda status: (status.index,))


def _decisions() -> Select[*tuple[Any, ...]]:
    model = CostModelRow.family, CostModelRow.name, CostModelRow.version
    task = Task.index.label("task_index"), Task.name.label("task_name"), Task.weight.label("weight")
    counts = _count().label("trials"), _count(failed()).label("failures")
    best = select(func.min(Measurement.latency_us)).where(*_own_trials(), eligible(), is_same_context())
    found_us = best.correlate(Round, Job).scalar_subquery()
    # With one round in flight per workload, rows up to `seen_upto` precede the round.
    same_workload = Measurement.workload_id == Round.workload_id, Measurement.target_id == Round.target_id
    earlier_rows = *same_workload, Measurement.id <= Round.seen_upto, eligible(), is_same_context()
    earlier_us = select(Measurement.latency_us).where(*earlier_rows).order_by(Measurement.latency_us).limit(1)
    before_us = earlier_us.correlate(Round, Job).scalar_subquery()
    times = before_us.label("before_us"), found_us.label("found_us")
    query = select(Round, *model, *task, *counts, *times, LeaseRow.attempt)
    is_lease = LeaseRow.kind == WorkKind.ROUND, LeaseRow.subject == cast(Round.id, String)
    return (
        query.join(LeaseRow, and_(*is_lease))
        .join(Task, Task.id == Round.task_id)
        .join(Job, Job.id == Round.job_id)
        .join(CostModelRow, CostModelRow.id == Round.cost_model_id, isouter=True)
    )


def _count(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    query = select(func.count(Measurement.id)).where(*_own_trials(), *conditions)
    return query.correlate(Round).scalar_subquery()


def _own_trials() -> tuple[ColumnElement[bool], ...]:
    return Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL


def _status(row: Row[*tuple[Any, ...]]) -> RoundStatus:
    """Return a round with its measured result, without candidates that gave wrong results."""
    planned, family, model_name, version = row[:4]
    fields = {name: value for name, value in row._mapping.items() if name in RoundStatus.model_fields}
    model = None if family is None else CostModelName(family, model_name, version)
    notes, first = planned.reason, "" if planned.seen_upto else "first round "
    has_duration = planned.started_at is not None and planned.finished_at is not None
    return RoundStatus.from_row(
        planned,
        **fields,
        policy=notes.policy,
        score=notes.score,
        why=notes.why,
        forecast=notes.forecast,
        gain_us=_gain_us(row.weight, row.before_us, row.found_us),
        in_interval=_in_interval(planned, notes.forecast, row.found_us),
        cost_model=None if model is None else str(model),
        cost_model_version=None if model is None else model.version,
        proposal=f"{first}proposed by {model}" if model is not None and model.is_base else None,
        seconds=planned.finished_at - planned.started_at if has_duration else None,
        reason=notes,
    )


def _gain_us(weight: int, before_us: float | None, found_us: float | None) -> float | None:
    """Return the microseconds that a round saved of the job's weighted total; None without a time before."""
    if before_us is None:
        return None
    return weight * (before_us - min(before_us, before_us if found_us is None else found_us))


def _in_interval(planned: Round, forecast: RoundForecast | None, found_us: float | None) -> bool | None:
    """Return whether the result is in the forecast interval; None if unfinished, or with upper bounds."""
    stats = planned.stats
    if forecast is None or found_us is None or planned.state != RoundState.DONE:
        return None
    if stats is not None and stats.disturbance is not None and stats.disturbance.bounds:
        return None
    return forecast.low_us <= found_us <= forecast.high_us
