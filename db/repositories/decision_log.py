"""The decision log: a job's rounds, with the best time before each round and its result."""

from typing import Any

from sqlalchemy import ColumnElement, Row, ScalarSelect, String, and_, cast, func, select

from mallorn.core.cost_model_name import CostModelName
from mallorn.core.states import MeasurementKind, RoundState, WorkKind
from mallorn.core.values.decision_log import RoundStatus
from mallorn.db.repositories.base import Page, Repository
from mallorn.db.repositories.measurement_filters import has_failed, is_eligible, is_usable_by_job
from mallorn.db.tables import CostModelRow, Job, LeaseRow, Measurement, Round, Task


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
        model = CostModelRow.family, CostModelRow.name, CostModelRow.version
        task = Task.index.label("task_index"), Task.name.label("task_name"), Task.weight.label("weight")
        counts = _count_own_trials().label("trials"), _count_own_trials(has_failed()).label("failures")
        own_trials = *_own_trials(), is_eligible(Job.owner), is_usable_by_job()
        best = select(func.min(Measurement.latency_us)).where(*own_trials)
        best_us = best.correlate(Round, Job).scalar_subquery().label("best_us")
        # Rows up to `seen_upto` were there when the round began.
        same_workload = Measurement.workload_id == Round.workload_id, Measurement.target_id == Round.target_id
        is_earlier = *same_workload, Measurement.id <= Round.seen_upto
        earlier_rows = *is_earlier, is_eligible(Job.owner), is_usable_by_job()
        latency = Measurement.latency_us
        earlier = select(latency).where(*earlier_rows).order_by(latency).limit(1)
        previous_best_us = earlier.correlate(Round, Job).scalar_subquery().label("previous_best_us")
        is_lease = LeaseRow.kind == WorkKind.ROUND, LeaseRow.subject == cast(Round.id, String)
        query = (
            select(Round, *model, *task, *counts, previous_best_us, best_us, LeaseRow.attempt)
            .join(LeaseRow, and_(*is_lease))
            .join(Task, Task.id == Round.task_id)
            .join(Job, Job.id == Round.job_id)
            .join(CostModelRow, CostModelRow.id == Round.cost_model_id, isouter=True)
            .where(Round.job_id == job_id)
        )
        if task_index is not None:
            query = query.where(Task.index == task_index)
        if cursor is not None:
            last = Page.decode_cursor(cursor, int)[0]
            query = query.where(Round.index > last if oldest_first else Round.index < last)
        order = Round.index.asc() if oldest_first else Round.index.desc()
        rows = self.session.execute(query.order_by(order).limit(limit + 1))
        return Page.of([_status(row) for row in rows], limit, lambda status: (status.index,))


def _count_own_trials(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    query = select(func.count(Measurement.id)).where(*_own_trials(), *conditions)
    return query.correlate(Round).scalar_subquery()


def _own_trials() -> tuple[ColumnElement[bool], ...]:
    return Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL


def _status(row: Row[*tuple[Any, ...]]) -> RoundStatus:
    record: Round
    record, family, model_name, version = row[:4]
    fields = {name: value for name, value in row._mapping.items() if name in RoundStatus.model_fields}
    model = None if family is None else CostModelName(family, model_name, version)
    notes, first = record.reason, "" if record.seen_upto else "first round "
    seconds = None
    if record.started_at is not None and record.finished_at is not None:
        seconds = record.finished_at - record.started_at
    gain_us = None  # microseconds saved of the job's weighted total
    if row.previous_best_us is not None:
        best_us = row.previous_best_us if row.best_us is None else min(row.previous_best_us, row.best_us)
        gain_us = row.weight * (row.previous_best_us - best_us)
    # A result that contains upper bounds cannot be compared with the forecast.
    is_in_interval: bool | None = None
    disturbance = None if record.stats is None else record.stats.disturbance
    has_result = record.state == RoundState.DONE and row.best_us is not None
    if notes.forecast is not None and has_result and not (disturbance and disturbance.upper_bounds):
        is_in_interval = notes.forecast.low_us <= row.best_us <= notes.forecast.high_us
    return RoundStatus.from_row(
        record,
        **fields,
        policy=notes.policy,
        score=notes.score,
        why=notes.why,
        forecast=notes.forecast,
        gain_us=gain_us,
        is_in_interval=is_in_interval,
        cost_model=None if model is None else str(model),
        cost_model_version=None if model is None else model.version,
        proposal=f"{first}proposed by {model}" if model is not None and model.is_base else None,
        seconds=seconds,
        reason=notes,
    )
