"""What plans need of closed rounds, stored so that a plan does not read them again."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)

from mallorn.core.outcomes import Outcome
from mallorn.core.states import OFF, WRITE, MeasurementKind, RoundState
from mallorn.core.values.learning_curve import ClosedRounds, WorkloadCurve, WorkloadRound
from mallorn.db.measurement_codec import pack_points, unpack_points
from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.measurement_filters import is_not_refuted
from mallorn.db.repositories.rounds import OPEN
from mallorn.db.tables import Job, LearningCurve, Measurement, Round, Task

_Rows = Sequence[Row[*tuple[Any, ...]]]
_IS_OPEN: Final = Round.state.in_(OPEN)
# Literals, so that SQLite uses the partial indexes of unsettled rounds and wrong results.
_IS_UNSETTLED: Final = text("not rounds.settled")
# Every sketch has a positive id; so compared, SQLite prefers this index to others.
IS_WRONG: Final = and_(
    Measurement.outcome == literal_column(f"'{Outcome.WRONG_RESULT}'"), Measurement.sketch_id > 0
)


class CurveKey(NamedTuple):
    """Identifies a curve of a target by workload, measuring context (0: none) and scope."""

    workload_id: int
    context_id: int
    scope: str


@dataclass(frozen=True, slots=True)
class CountedRound:
    """A round that plans count, and the curve of which it is a part once it is closed."""

    id: int
    key: CurveKey
    results: WorkloadRound


class LearningCurves(Repository):
    """The learning curves of workloads, and the totals of tasks' own closed rounds.

    Both hold the settled rounds. A plan reads them (`stored`) and the few rounds that are
    not settled yet (`rounds`); what closed is settled after the plan (`settle`). So nothing
    that closes a round knows of curves, and rounds that an older version closes count, too.
    """

    def stored(self, job: Job, workload_ids: Collection[int]) -> dict[int, WorkloadCurve]:
        """Return a job's curves of those of these workloads of which they are stored."""
        of_workload = defaultdict[int, list[WorkloadCurve]](list)
        for key, curve in self._read(job.target_id, _keys(job, workload_ids)).items():
            of_workload[key.workload_id].append(curve)
        complete = {one: found for one, found in of_workload.items() if len(found) == len(_scopes(job))}
        return {workload_id: reduce(WorkloadCurve.joined, found) for workload_id, found in complete.items()}

    def rounds(self, job: Job, workload_ids: Collection[int] | None = None) -> list[CountedRound]:
        """Return rounds that a job counts: its own, and closed ones that it may learn from.

        They are all rounds of these workloads or, without `workload_ids`, the unsettled
        ones of the job's workloads; in closing order, the open ones last.
        """
        if workload_ids is None:
            tasks = select(Task.workload_id).where(Task.job_id == job.id)
            condition = self._is_unsettled(Round.workload_id.in_(tasks), job.target_id)
        else:
            condition = self.is_among(Round.workload_id, workload_ids)
        query = _select_rounds(is_not_refuted(job.owner))
        return self._list(query.where(condition, Round.target_id == job.target_id, _is_counted(job)))

    def has_settled(self, round_ids: Collection[int]) -> bool:
        is_settled = self.is_among(Round.id, round_ids), Round.settled
        return (
            bool(round_ids) and self.session.scalar(select(Round.id).where(*is_settled).limit(1)) is not None
        )

    def settle(self, job: Job) -> None:
        """Add the closed rounds of a job's workloads to stored curves and tasks' totals.

        Rounds of other jobs are settled, too. Curves and totals that the job needs and that
        are not stored are computed from all rounds.
        """
        self._lock(job.target_id)
        tasks = self._list_totals([job.id])
        totals = {row.workload_id: row.closed for row in tasks}
        query = _select_rounds(Measurement.latency_us.is_not(None))
        query = query.where(Round.target_id == job.target_id, ~_IS_OPEN)
        of_job = self.is_among(Round.workload_id, totals)
        new = self._list(query.where(self._is_unsettled(of_job, job.target_id)))
        new_ids = [one.id for one in new]
        needed = _keys(job, totals)
        curves = self._read(job.target_id, {*needed, *(one.key for one in new)})
        changes = {key: curves[key].with_rounds(rows) for key, rows in _by_key(new).items() if key in curves}
        missing = {key.workload_id for key in needed if key not in curves}
        missing |= {workload_id for workload_id, closed in totals.items() if closed is None}
        # Without rounds that closed since they were listed above.
        is_listed = or_(Round.settled, self.is_among(Round.id, new_ids))
        is_missing = self.is_among(Round.workload_id, missing), is_listed, _is_counted(job)
        all_rounds = self._list(query.where(*is_missing)) if missing else []
        of_key = _by_key(all_rounds)
        explored = {key.workload_id for key in of_key}
        changes |= {
            key: WorkloadCurve().with_rounds(of_key.get(key, ()))
            for key in needed
            if key not in curves and key.workload_id in explored
        }
        self._store(job.target_id, changes)
        self._add_to_totals(job, tasks, new, all_rounds)
        is_new = self.is_among(Round.id, new_ids)
        self.execute_and_count(update(Round).where(is_new).values(settled=True))

    def drop(self, places: Iterable[tuple[int, int]]) -> None:
        """Delete what is stored of rounds whose measurements or job's context changed.

        `places` are ids of workloads with those of targets. Call it after the change:
        until the transaction ends, no other process stores curves of these targets.
        """
        of_target = defaultdict[int, list[int]](list)
        for workload_id, target_id in places:
            of_target[target_id].append(workload_id)
        for target_id, workload_ids in sorted(of_target.items()):
            self._lock(target_id)
            is_curve = self.is_among(LearningCurve.workload_id, workload_ids)
            curves = delete(LearningCurve).where(is_curve, LearningCurve.target_id == target_id)
            self.execute_and_count(curves)
            jobs = select(Job.id).where(Job.target_id == target_id)
            is_task = self.is_among(Task.workload_id, workload_ids), Task.job_id.in_(jobs)
            self.execute_and_count(update(Task).where(*is_task).values(closed=None))

    def drop_of_job(self, job_id: str) -> None:
        """Delete what is stored of a job's rounds, after its context has changed."""
        rounds = select(Round.workload_id, Round.target_id).where(Round.job_id == job_id, ~_IS_OPEN)
        self.drop(self.session.execute(rounds.distinct()).all())

    def _lock(self, target_id: int) -> None:
        self.lock_name(f"learning curves of target {target_id}")

    def _is_unsettled(self, condition: ColumnElement[bool], target_id: int) -> ColumnElement[bool]:
        """Return the condition for a target's unsettled rounds that meet another one."""
        is_unsettled = condition, Round.target_id == target_id, _IS_UNSETTLED
        return self.is_in(Round.id, select(Round.id).where(*is_unsettled))

    def _list(self, query: Select[*tuple[Any, ...]]) -> list[CountedRound]:
        return [
            CountedRound(
                round_id,
                CurveKey(workload_id, context_id or 0, "" if dataset == WRITE else job_id),
                WorkloadRound(job_id, RoundState(state), *results),
            )
            for round_id, workload_id, context_id, dataset, job_id, state, *results in (
                self.session.execute(query)
            )
        ]

    def _read(self, target_id: int, keys: Collection[CurveKey]) -> dict[CurveKey, WorkloadCurve]:
        row = LearningCurve
        columns = row.workload_id, row.context_id, row.scope, row.points, row.timed_trials, row.timed_sec
        is_wanted = (
            self.is_among(row.workload_id, {key.workload_id for key in keys}),
            self.is_among(row.context_id, {key.context_id for key in keys}),
            self.is_among(row.scope, {key.scope for key in keys}),
        )
        rows = self.session.execute(select(*columns).where(row.target_id == target_id, *is_wanted))
        curves = {
            CurveKey(workload_id, context_id, scope): WorkloadCurve(
                unpack_points(points), timed_trials, timed_sec
            )
            for workload_id, context_id, scope, points, timed_trials, timed_sec in rows
        }
        return {key: curves[key] for key in keys if key in curves}

    def _store(self, target_id: int, curves: dict[CurveKey, WorkloadCurve]) -> None:
        if not curves:
            return
        rows = [
            key._asdict()
            | {"target_id": target_id, "points": pack_points(curve.points)}
            | {"timed_trials": curve.timed_trials, "timed_sec": curve.timed_sec}
            for key, curve in sorted(curves.items())
        ]
        insert = self.insert(LearningCurve)
        new = {name: insert.excluded[name] for name in ("points", "timed_trials", "timed_sec")}
        key = ["workload_id", "target_id", "context_id", "scope"]
        self.execute_for_rows(insert.on_conflict_do_update(index_elements=key, set_=new), rows)

    def _list_totals(self, job_ids: Collection[str]) -> _Rows:
        columns = Task.id, Task.job_id, Task.workload_id, Task.closed
        return self.session.execute(select(*columns).where(self.is_among(Task.job_id, job_ids))).all()

    def _add_to_totals(
        self, job: Job, tasks: _Rows, new: Sequence[CountedRound], all_rounds: Sequence[CountedRound]
    ) -> None:
        """Add new rounds to all jobs' totals; compute those that `job`, with these tasks, lacks."""
        new_of_task, all_of_task = _by_task(new), _by_task(all_rounds)
        if other_jobs := {job_id for job_id, _ in new_of_task} - {job.id}:
            tasks = [*tasks, *self._list_totals(other_jobs)]
        rows: list[dict[str, object]] = []
        for task_id, job_id, workload_id, closed in sorted(tasks, key=lambda row: row.id):
            place = job_id, workload_id
            if closed is not None and place in new_of_task:
                rows.append({"of": task_id, "totals": closed.with_rounds(new_of_task[place])})
            elif closed is None and job_id == job.id:
                totals = ClosedRounds().with_rounds(all_of_task.get(place, ()))
                rows.append({"of": task_id, "totals": totals})
        if rows:
            totals_of_row = bindparam("totals", type_=Task.closed.type)
            task = update(Task).where(Task.id == bindparam("of")).values(closed=totals_of_row)
            self.execute_for_rows(task, rows)


def _scopes(job: Job) -> tuple[str, ...]:
    return {WRITE: ("",), OFF: (job.id,)}.get(job.dataset or WRITE, ("", job.id))


def _keys(job: Job, workload_ids: Iterable[int]) -> list[CurveKey]:
    return [CurveKey(one, job.context_id or 0, scope) for one in workload_ids for scope in _scopes(job)]


def _by_key(rounds: Iterable[CountedRound]) -> dict[CurveKey, list[WorkloadRound]]:
    groups = defaultdict[CurveKey, list[WorkloadRound]](list)
    for one in rounds:
        groups[one.key].append(one.results)
    return groups


def _by_task(rounds: Iterable[CountedRound]) -> dict[tuple[str, int], list[WorkloadRound]]:
    groups = defaultdict[tuple[str, int], list[WorkloadRound]](list)
    for one in rounds:
        groups[one.results.job_id, one.key.workload_id].append(one.results)
    return groups


def _is_counted(job: Job) -> ColumnElement[bool]:
    is_shared = and_(Job.context_id == job.context_id, Job.dataset == WRITE, ~_IS_OPEN)
    return or_(Round.job_id == job.id, and_(func.coalesce(job.dataset, WRITE) != OFF, is_shared))


def _select_rounds(is_valid: ColumnElement[bool]) -> Select[*tuple[Any, ...]]:
    """Return the query for rounds with their results, of which only valid times count."""
    key = Round.id, Round.workload_id, Job.context_id, Job.dataset
    columns = *key, Round.job_id, Round.state, Round.size
    # Null in another context than the job's.
    best = func.min(case((and_(Measurement.context_id == Job.context_id, is_valid), Measurement.latency_us)))
    is_timed = func.max(Measurement.latency_us).is_not(None)
    own_us = case((Measurement.context_id == Job.context_id, Measurement.latency_us))
    results = func.count(Measurement.id), best, and_(is_timed, func.max(own_us).is_(None))
    wall = Round.finished_at - Round.started_at
    trial = and_(Measurement.round_id == Round.id, Measurement.kind == MeasurementKind.TRIAL)
    return (
        select(*columns, *results, wall, Round.finished_at)
        .join(Job, Job.id == Round.job_id)
        .join(Measurement, trial, isouter=True)
        .group_by(Round.id, Job.id)
        .order_by(_IS_OPEN, Round.finished_at, Round.id)
    )
