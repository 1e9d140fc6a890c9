"""The decision log: a job's rounds, the best known before each, and its result."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, ScalarSelect, Select, String, and_, cast, func, select

from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository
from db.repositories.best import comparable, eligible, failed
from db.tables import CostModelRow, HeldWork, Job, Measurement, Round, Task
from mallorn.core.states import MeasurementKind, WorkKind
from mallorn.core.versions import VersionName


@dataclass(frozen=True, slots=True)
class Decision:
    """One round with its measured outcome. Candidates found to compute wrong results are left out."""

    round: Round
    task_index: int
    task_name: str
    weight: int
    cost_model: VersionName | None
    trials: int  # committed so far
    failures: int
    before_us: float | None  # the task's best when the round was opened
    found_us: float | None  # the best of the round's own candidates
    attempt: int  # how often it was begun

    @property
    def cost_model_version(self) -> int | None:
        return self.cost_model.version if self.cost_model else None

    @property
    def best_us(self) -> float | None:
        """The task's best after this round."""
        return min((best for best in (self.before_us, self.found_us) if best is not None), default=None)

    @property
    def gain_us(self) -> float | None:
        """The round's gain on the job's weighted total; None without an earlier time."""
        if self.before_us is None or self.best_us is None:
            return None
        return self.weight * (self.before_us - self.best_us)


class DecisionLog(Repository):
    """Reads rounds with their results."""

    def list(
        self,
        job_id: str,
        *,
        task_index: int | None = None,
        oldest_first: bool = False,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Decision]:
        """A job's or task's rounds, in planning order or newest first."""
        query = _decisions().where(Round.job_id == job_id)
        if task_index is not None:
            query = query.where(Task.index == task_index)
        if cursor is not None:
            last = decode_cursor(cursor, int)[0]
            query = query.where(Round.index > last if oldest_first else Round.index < last)
        order = Round.index.asc() if oldest_first else Round.index.desc()
        rows = self.session.execute(query.order_by(order).limit(check_limit(limit) + 1))
        return page([_decision(row) for row in rows], limit, lambda found: (found.round.index,))


def _decisions() -> Select[*tuple[Any, ...]]:
    columns = Task.index, Task.name, Task.weight, CostModelRow.family, CostModelRow.name, CostModelRow.version
    best = select(func.min(Measurement.latency_us)).where(*_own_trials(), eligible(), comparable())
    found_us = best.correlate(Round, Job).scalar_subquery()
    query = select(Round, *columns, _count(), _count(failed()), _before(), found_us, HeldWork.attempt)
    held = HeldWork.kind == WorkKind.ROUND, HeldWork.subject == cast(Round.id, String)
    return (
        query.join(HeldWork, and_(*held))
        .join(Task, Task.id == Round.task_id)
        .join(Job, Job.id == Round.job_id)
        .join(CostModelRow, CostModelRow.id == Round.cost_model_id, isouter=True)
    )


def _count(*conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    query = select(func.count(Measurement.id)).where(*_own_trials(), *conditions)
    return query.correlate(Round).scalar_subquery()


def _before() -> ScalarSelect[float | None]:
    """The best before a round: a workload has one round in flight, so all rows up to its mark were known."""
    same = Measurement.workload_id == Round.workload_id, Measurement.target_id == Round.target_id
    known = *same, Measurement.id <= Round.seen_upto, eligible(), comparable()
    query = select(Measurement.latency_us).where(*known).order_by(Measurement.latency_us).limit(1)
    return query.correlate(Round, Job).scalar_subquery()


def _own_trials() -> tuple[ColumnElement[bool], ...]:
    return Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL


def _decision(row: Row[*tuple[Any, ...]]) -> Decision:
    first, index, name, weight, family, model_name, version, *brought = row
    model = VersionName(family, model_name, version) if family is not None else None
    return Decision(first, index, name, weight, model, *brought)
