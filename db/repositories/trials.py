"""Measurements as searchers, training and exports read them: candidates and their outcomes."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, not_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial
from mallorn.db.columnar_rows import Columns
from mallorn.db.measurement_codec import pack_decisions, unpack_decisions, unpack_times
from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.measurement_filters import (
    TrialLimits,
    failed_under_other_limits,
    is_bound_only,
    is_contributed,
    is_eligible,
    is_imported,
    is_not_withdrawn,
    is_readable_by,
    is_shared,
    is_undisturbed,
    was_given_usual_time,
)
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.tables import Device, Job, Measurement, SketchRow, Task, Workload

# Without repeats in a finish, which would count a candidate twice.
_LEARNABLE = (MeasurementKind.TRIAL, MeasurementKind.FOREIGN)
# A round reads so many trials of its workload at most: searchers and models look at fewer.
NEWEST: Final = 4096
FASTEST: Final = 256
MOST_WORKLOADS: Final = 64  # of a family, of which a part of the rows is read
_Rows = Select[*tuple[Any, ...]]
_ENOUGH = 16  # the fastest rows that are read at first; they usually hold the best candidate


class Trials(Repository):
    """Trials that `reader` may use or, without one, those of jobs that write to the dataset."""

    def __init__(self, session: Session, reader: Job | None = None) -> None:
        super().__init__(session)
        self._reader = None if reader is None else reader.owner
        self._is_readable = is_contributed() if reader is None else is_readable_by(reader)

    def history(
        self,
        workload_id: int,
        target_id: int,
        upto: int | None = None,
        context_id: int | None = None,
        limits: TrialLimits | None = None,
        candidates: Collection[Candidate] | None = None,
    ) -> Sequence[Trial]:
        """Return a workload's trials on a target up to measurement `upto`, oldest first: the
        NEWEST ones, and of those before them the FASTEST with a time. With `candidates`,
        return all trials of these instead.

        With `context_id`, only trials in that context; trials that reached no device belong
        to every context. Failures that may not recur under `limits` are WITHDRAWN.
        """
        outcome: ColumnElement[str] | InstrumentedAttribute[str] = Measurement.outcome
        if limits is not None:
            outcome = case((failed_under_other_limits(limits), str(Outcome.WITHDRAWN)), else_=outcome)
        on_target = Measurement.target_id == target_id, self._is_readable, *_learnable()
        query = select_trials(outcome=outcome).where(*on_target)
        if context_id is not None:
            in_context = Measurement.context_id.is_(None), Measurement.context_id == context_id
            query = query.where(or_(*in_context))
        if upto is not None:
            query = query.where(Measurement.id <= upto)
        newest_first = _order_newest_first(query, workload_id)
        query = query.where(Measurement.workload_id == workload_id).order_by(Measurement.id)
        if candidates is not None:
            packed = {pack_decisions(candidate.decisions) for candidate in candidates}
            sketches = {candidate.sketch for candidate in candidates}
            query = query.where(SketchRow.key.in_(sketches), Measurement.decisions.in_(packed))
            return [trial for trial in self._read(query) if trial.candidate in candidates]
        newest = self._read(newest_first.limit(NEWEST))[::-1]
        if len(newest) < NEWEST:
            return newest
        nth = newest_first.with_only_columns(Measurement.id).offset(NEWEST - 1).limit(1)
        oldest_id = self.session.scalar(nth)
        ids = query.with_only_columns(Measurement.id).order_by(None)
        is_earlier = Measurement.id < oldest_id, Measurement.latency_us.is_not(None)
        fastest = ids.where(*is_earlier).order_by(Measurement.latency_us, Measurement.id).limit(FASTEST)
        is_fastest = self.is_among(Measurement.id, self.session.scalars(fastest).all())
        return [*self._read(query.where(is_fastest)), *newest]

    def read_family_columns(self, family: str, target_id: int, most: int) -> tuple[Columns, int]:
        """Return columns of the trials of a family's workloads on a target, oldest first: all
        of them if there are at most `most`, or else the newest and the fastest of each of
        the MOST_WORKLOADS workloads that the newest jobs have. Also return how many trials
        the family has, at most `most`.

        The columns `id`, `workload_id`, `context_id`, `outcome` and `latency_us` suffice to
        choose rows for training; `by_ids` reads the candidates, most of a row's bytes.
        """
        row = Measurement
        columns = row.id, row.workload_id, row.context_id, row.outcome, row.latency_us
        usable = select(*columns).where(*self._usable_in_refit(target_id))
        members = _select_family_members(family, target_id)
        if (total := self.count_new_family_rows(family, target_id, most + 1)) <= most:
            whole = usable.where(self.is_in(row.workload_id, members)).order_by(row.id)
            return Columns.of(self.session.execute(whole)), total
        chosen_ids = self.session.scalars(members.limit(MOST_WORKLOADS)).all()
        by_id: dict[int, Sequence[Any]] = {}
        share = max(1, most // (2 * len(chosen_ids)))
        for workload_id in chosen_ids:  # each query reads few rows of an index
            newest = _order_newest_first(usable, workload_id)
            is_timed = row.workload_id == workload_id, row.latency_us.is_not(None)
            fastest = usable.where(*is_timed).order_by(row.latency_us)
            for query in (newest, fastest):
                by_id |= {one.id: one for one in self.session.execute(query.limit(share))}
        return Columns([column.key for column in columns], [by_id[row_id] for row_id in sorted(by_id)]), most

    def by_ids(self, ids: Sequence[int]) -> Sequence[Trial]:
        """Return the trials with these ids, which must be ascending, in that order."""
        return self._read(select_trials().where(self.is_among(Measurement.id, ids)).order_by(Measurement.id))

    def count_new_family_rows(self, family: str, target_id: int, most: int, after_id: int = 0) -> int:
        """Return the number of a family's trials with ids above `after_id`, but at most `most`."""
        of_family = self.is_in(Measurement.workload_id, _select_family_members(family, target_id))
        is_new = of_family, Measurement.id > after_id, *self._usable_in_refit(target_id)
        rows = select(Measurement.id).where(*is_new).limit(most).subquery()
        return self.session.scalar(select(func.count()).select_from(rows)) or 0

    def best(
        self,
        workload_id: int,
        target_id: int,
        count: int = 1,
        context_id: int | None = None,
        *,
        imported: bool = False,
    ) -> Sequence[Trial]:
        """Return the fastest distinct candidates with correct results, best first; or, if
        `imported`, those of other datasets, by their times there.

        If there are only upper bounds, return the candidates with the lowest upper bounds.
        """
        conditions = self._of_task(workload_id, target_id)
        if context_id is not None:
            conditions.append(Measurement.context_id == context_id)
        if imported:
            return self._fastest([*conditions, is_imported(self._reader)], count)
        fastest = self._fastest([*conditions, is_eligible(self._reader)], count)
        return fastest or self._fastest(
            [*conditions, is_bound_only(self._reader)], count, Measurement.bound_us
        )

    def list_fastest_of_first(
        self,
        workload_id: int,
        target_id: int,
        context_id: int | None,
        means: str,
        count: int,
        limits: TrialLimits,
    ) -> Sequence[Trial]:
        """Return the valid ones, fastest first, of the first `count` trials by one means.

        `means` is the end of their origin, such as `mutation` of `ga:mutation`. Failures
        that may not recur under `limits` are not counted.
        """
        program = self._of_task(workload_id, target_id)
        in_context = or_(Measurement.context_id == context_id, Measurement.context_id.is_(None))
        origin = Measurement.kind == MeasurementKind.TRIAL, in_context, Measurement.origin.endswith(means)
        conditions = *program, *origin, not_(failed_under_other_limits(limits))
        trials = select(Measurement.id).where(*conditions).order_by(Measurement.round_id, Measurement.slot)
        is_first = Measurement.id.in_(trials.limit(count))
        return self._fastest([*program, is_eligible(self._reader), is_first], count)

    def has_failure_with(self, job_id: str, words: str) -> bool:
        """Return whether a trial of a job failed with an error that begins with `words`."""
        is_trial = Measurement.job_id == job_id, Measurement.kind == MeasurementKind.TRIAL
        query = select(Measurement.id).where(*is_trial, Measurement.error.startswith(words, autoescape=True))
        return self.session.scalar(query.limit(1)) is not None

    def best_incomparable(
        self, workload_id: int, target_id: int, count: int, context_id: int | None
    ) -> Sequence[Trial]:
        """Return the fastest distinct candidates with times not comparable to a job's.

        They come from other datasets, or from other builders than that of `context_id`.
        """
        conditions = self._of_task(workload_id, target_id)
        context_ids = () if context_id is None else Contexts(self.session).list_other_builds(context_id)
        is_other_build = Measurement.context_id.in_(context_ids)
        is_usable = or_(is_imported(self._reader), and_(is_other_build, is_eligible(self._reader)))
        return self._fastest([*conditions, is_usable], count)

    def of_round(self, round_id: int) -> Sequence[tuple[Trial, int | None]]:
        """Return a round's trials of all attempts, with context ids, by slot."""
        is_trial = Measurement.round_id == round_id, Measurement.kind == MeasurementKind.TRIAL
        query = select_trials(Measurement.predicted, Measurement.context_id)
        rows = self.session.execute(query.where(*is_trial).order_by(Measurement.slot))
        return [(trial_of(row), row.context_id) for row in rows]

    def _of_task(self, workload_id: int, target_id: int) -> list[ColumnElement[bool]]:
        """Return the conditions for a workload's readable rows on a target."""
        same_task = Measurement.workload_id == workload_id, Measurement.target_id == target_id
        return [*same_task, self._is_readable]

    def _fastest(
        self,
        conditions: Sequence[ColumnElement[bool]],
        count: int,
        time: InstrumentedAttribute[float | None] = Measurement.latency_us,
    ) -> Sequence[Trial]:
        query = select_trials(time=time).where(*conditions).order_by(time, Measurement.id)
        # Repeats of a candidate have similar times, so a few of the fastest rows suffice.
        size = _ENOUGH + 4 * count
        trials: dict[Candidate, Trial] = {}
        for start in itertools.count(0, size):
            rows = self._read(query.offset(start).limit(size))
            for row in rows:
                trials.setdefault(row.candidate, row)
            if len(trials) >= count or len(rows) < size:
                break
        return list(trials.values())[:count]

    def count_learnable_by_workload(self, workload_ids: Sequence[int], target_id: int) -> dict[int, int]:
        """Return each workload's number of trials that models learn from, if it has any."""
        conditions = self.is_among(Measurement.workload_id, workload_ids), Measurement.target_id == target_id
        query = select(Measurement.workload_id, func.count()).where(*conditions, *_learnable())
        query = query.where(self._is_readable)
        return dict(self.session.execute(query.group_by(Measurement.workload_id)).all())

    def _usable_in_refit(self, target_id: int) -> tuple[ColumnElement[bool], ...]:
        of_target = Measurement.target_id == target_id, self._is_readable
        return *of_target, *_learnable(), was_given_usual_time()

    def _read(self, query: _Rows) -> Sequence[Trial]:
        return [trial_of(row) for row in self.session.execute(query)]


def _select_family_members(family: str, target_id: int) -> Select[int]:
    # On another target, a workload may be in a different family.
    is_member = Task.family == family, Job.target_id == target_id
    members = select(Task.workload_id).join(Job, Job.id == Task.job_id).where(*is_member)
    return members.group_by(Task.workload_id).order_by(func.max(Task.id).desc())


def _order_newest_first(query: _Rows, workload_id: int) -> _Rows:
    """Return a query's rows of a workload, newest first.

    If the workload were compared by `==`, Postgres might read all newer rows by their ids.
    """
    is_of_workload = Measurement.workload_id.between(workload_id, workload_id)
    return query.where(is_of_workload).order_by(Measurement.workload_id.desc(), Measurement.id.desc())


def select_trials(
    *extra_columns: ColumnElement[Any] | InstrumentedAttribute[Any],
    time: InstrumentedAttribute[float | None] = Measurement.latency_us,
    outcome: ColumnElement[str] | InstrumentedAttribute[str] = Measurement.outcome,
) -> _Rows:
    """Return a query of rows for `trial_of`; `extra_columns` may hold long values."""
    row, labels = Measurement, (outcome.label("outcome"), time.label("latency_us"))
    columns = row.decisions, *labels, row.origin, row.build_ms
    query = select(SketchRow.key.label("sketch"), *columns, *extra_columns)
    return query.join(SketchRow, SketchRow.id == row.sketch_id)


def trial_of(row: Row[*tuple[Any, ...]]) -> Trial:
    """Return a row of a `select_trials` query as a trial with the selected fields."""
    sketch, decisions, outcome, latency_us, origin, build_ms, *extra_values = row
    fields = row._mapping if extra_values else {}  # a mapping per row is slow, and a round reads thousands
    return Trial(
        Candidate(sketch, unpack_decisions(decisions)),
        Outcome.read(outcome),
        latency_us,
        origin,
        build_ms,
        run_us=unpack_times(fields.get("run_us") or b""),
        error=fields.get("error") or "",
        predicted=fields.get("predicted"),
    )


def _learnable() -> tuple[ColumnElement[bool], ...]:
    return Measurement.kind.in_(_LEARNABLE), is_not_withdrawn(), is_undisturbed()


@dataclass(frozen=True, slots=True)
class MeasuredTask:
    workload_id: int
    target_id: int
    context_id: int


class MeasuredTasks(Repository):
    def list(self) -> Sequence[MeasuredTask]:
        """Return the tasks with non-private trials, in the order of their first one."""
        key = Measurement.workload_id, Measurement.target_id, Measurement.context_id
        query = select(*key).join(Workload, Workload.id == Measurement.workload_id)
        query = query.where(_is_trial(), Measurement.context_id.is_not(None), is_shared())
        rows = self.session.execute(query.group_by(*key).order_by(func.min(Measurement.id)))
        return [
            MeasuredTask(workload, target, context)
            for workload, target, context in rows
            if context is not None
        ]

    def trials(self, task: MeasuredTask) -> Sequence[Trial]:
        """Return a task's trials, oldest first; without device, those of all contexts."""
        same_task = Measurement.workload_id == task.workload_id, Measurement.target_id == task.target_id
        is_in_context = or_(Measurement.context_id == task.context_id, Measurement.context_id.is_(None))
        query = (
            select_trials(Measurement.run_us, Measurement.error)
            .join(Workload, Workload.id == Measurement.workload_id)
            .where(*same_task, is_in_context, _is_trial(), is_shared(), is_not_withdrawn(), is_undisturbed())
            .order_by(Measurement.id)
        )
        return [trial_of(row) for row in self.session.execute(query)]

    def devices(self) -> Sequence[Device]:
        device_ids = select(Measurement.device_id).where(Measurement.device_id.is_not(None)).distinct()
        query = select(Device).where(Device.id.in_(device_ids)).order_by(Device.name)
        return self.session.scalars(query).all()


def _is_trial() -> ColumnElement[bool]:
    return Measurement.kind == MeasurementKind.TRIAL
