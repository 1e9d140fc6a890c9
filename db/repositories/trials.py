"""Measurements as searchers and trainers see them: candidates and what became of them."""

import itertools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, case, func, not_, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from db.columnar_rows import Columns
from db.measurement_codec import unpack_decisions, unpack_times
from db.repositories.base import Repository
from db.repositories.measurement_filters import (
    TrialLimits,
    bounded,
    eligible,
    failed_under_other_limits,
    is_imported,
    is_not_withdrawn,
    undisturbed,
    was_given_usual_time,
)
from db.repositories.measuring_contexts import Contexts
from db.tables import Job, Measurement, SketchRow, Task
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.candidate import Candidate
from mallorn.core.values.trial import Trial

# Repeats of the finish would count a candidate twice.
_LEARNABLE = (MeasurementKind.TRIAL, MeasurementKind.FOREIGN)
_ENOUGH = 16  # rows in which the best candidate is found, repeats and all


class Trials(Repository):
    def history(
        self,
        workload_id: int,
        target_id: int,
        upto: int | None = None,
        context_id: int | None = None,
        limits: TrialLimits | None = None,
    ) -> Sequence[Trial]:
        """Everything tried on a workload and target up to row `upto`, oldest first.

        In all contexts, or in one: what never reached a device belongs to every context. With the `limits` of
        a job, failures that say nothing to it have the outcome WITHDRAWN.
        """
        same = Measurement.workload_id == workload_id, Measurement.target_id == target_id
        outcome: ColumnElement[str] | InstrumentedAttribute[str] = Measurement.outcome
        if limits is not None:
            outcome = case((failed_under_other_limits(limits), str(Outcome.WITHDRAWN)), else_=outcome)
        query = select_trials(outcome=outcome).where(*same, *_learnable()).order_by(Measurement.id)
        if context_id is not None:
            here = Measurement.context_id.is_(None), Measurement.context_id == context_id
            query = query.where(or_(*here))
        return self._read(query if upto is None else query.where(Measurement.id <= upto))

    def outlines(self, family: str, target_id: int) -> Columns:
        """All rows of workloads that are in this family on the target, oldest first.

        As much of each as it takes to choose what to learn from: `id`, `workload_id`, `context_id`, `outcome`
        and `latency_us`. What was tried is most of a row's bytes, and `by_ids` reads it.
        """
        found = Measurement
        columns = found.id, found.workload_id, found.context_id, found.outcome, found.latency_us
        query = select(*columns).where(*self._of_family(family, target_id, 0)).order_by(found.id)
        return Columns.of(self.session.execute(query))

    def by_ids(self, ids: Sequence[int]) -> Sequence[Trial]:
        """Rows in the order of their ids, which are given in that order."""
        return self._read(select_trials().where(self.among(Measurement.id, ids)).order_by(Measurement.id))

    def family_growth(self, family: str, target_id: int, after: int = 0) -> int:
        """How many rows `outlines` would return, without reading them."""
        of_family = self._of_family(family, target_id, after)
        query = select(func.count()).select_from(Measurement).where(*of_family)
        return self.session.scalar(query) or 0

    def best(
        self, workload_id: int, target_id: int, count: int = 1, context_id: int | None = None
    ) -> Sequence[Trial]:
        """The fastest distinct candidates, best first; those found to compute wrong results are left out.

        Where nothing was timed undisturbed, those with the lowest bounds.
        """
        same = [Measurement.workload_id == workload_id, Measurement.target_id == target_id]
        if context_id is not None:
            same.append(Measurement.context_id == context_id)
        timed = self._fastest([*same, eligible()], count)
        return timed or self._fastest([*same, bounded()], count, Measurement.bound_us)

    def first(
        self,
        workload_id: int,
        target_id: int,
        context_id: int | None,
        means: str,
        count: int,
        limits: TrialLimits,
    ) -> Sequence[Trial]:
        """The first `count` candidates that were tried and found by these means, as far as they are sound.

        The fastest comes first. What failed under other limits than these counts as untried.
        """
        same = [Measurement.workload_id == workload_id, Measurement.target_id == target_id]
        here = or_(Measurement.context_id == context_id, Measurement.context_id.is_(None))
        of_it = Measurement.kind == MeasurementKind.TRIAL, here, Measurement.origin.endswith(means)
        counted = *same, *of_it, not_(failed_under_other_limits(limits))
        tried = select(Measurement.id).where(*counted).order_by(Measurement.round_id, Measurement.slot)
        return self._fastest([*same, eligible(), Measurement.id.in_(tried.limit(count))], count)

    def any_failed_with(self, job_id: str, words: str) -> bool:
        """Whether a trial of a job failed with an error that begins so."""
        failed = Measurement.job_id == job_id, Measurement.kind == MeasurementKind.TRIAL
        query = select(Measurement.id).where(*failed, Measurement.error.startswith(words, autoescape=True))
        return self.session.scalar(query.limit(1)) is not None

    def best_brought(
        self, workload_id: int, target_id: int, count: int = 1, context_id: int | None = None
    ) -> Sequence[Trial]:
        """The fastest distinct candidates of other datasets, by the times that were taken there."""
        same = [Measurement.workload_id == workload_id, Measurement.target_id == target_id, is_imported()]
        if context_id is not None:
            same.append(Measurement.context_id == context_id)
        return self._fastest(same, count)

    def best_incomparable(
        self, workload_id: int, target_id: int, count: int, context_id: int | None
    ) -> Sequence[Trial]:
        """Return the fastest distinct candidates whose times do not compare with a job's, by those times.

        They are of other datasets, or of other builders than that of the job's context `context_id`.
        """
        same = [Measurement.workload_id == workload_id, Measurement.target_id == target_id]
        others = () if context_id is None else Contexts(self.session).built_otherwise(context_id)
        built_otherwise = and_(Measurement.context_id.in_(others), eligible())
        return self._fastest([*same, or_(is_imported(), built_otherwise)], count)

    def of_round(self, round_id: int) -> Sequence[tuple[Trial, int]]:
        """The valid candidates of a round in their order, whichever attempt committed them; and contexts."""
        valid = Measurement.kind == MeasurementKind.TRIAL, Measurement.latency_us.is_not(None)
        query = select_trials(Measurement.predicted, Measurement.context_id)
        rows = self.session.execute(
            query.where(Measurement.round_id == round_id, *valid).order_by(Measurement.slot)
        )
        # What is valid has a context.
        return [(trial_of(row), row.context_id) for row in rows if row.context_id is not None]

    def _fastest(
        self,
        conditions: Sequence[ColumnElement[bool]],
        count: int,
        time: InstrumentedAttribute[float | None] = Measurement.latency_us,
    ) -> Sequence[Trial]:
        query = select_trials(time=time).where(*conditions).order_by(time, Measurement.id)
        # Repeats of a candidate stand near each other: a few rows from the fast end of the index will do.
        size = _ENOUGH + 4 * count
        found: dict[Candidate, Trial] = {}
        for start in itertools.count(0, size):
            rows = self._read(query.offset(start).limit(size))
            for row in rows:
                found.setdefault(row.candidate, row)
            if len(found) >= count or len(rows) < size:
                break
        return list(found.values())[:count]

    def known(self, workload_ids: Sequence[int], target_id: int) -> dict[int, int]:
        """How many rows the dataset has by workload; workloads without any are left out."""
        same = self.among(Measurement.workload_id, workload_ids), Measurement.target_id == target_id
        query = select(Measurement.workload_id, func.count()).where(*same, *_learnable())
        return dict(self.session.execute(query.group_by(Measurement.workload_id)).all())

    def _of_family(self, family: str, target_id: int, after: int) -> tuple[ColumnElement[bool], ...]:
        # Each target has families of its own: a workload may be in this one on another target.
        here = Task.family == family, Job.target_id == target_id
        members = select(Task.workload_id).join(Job, Job.id == Task.job_id).where(*here).distinct()
        # Read first: of a query's rows Postgres expects so many that it walks all measurements.
        ids = self.session.scalars(members).all()
        of_target = Measurement.target_id == target_id, Measurement.id > after
        return self.among(Measurement.workload_id, ids), *of_target, *_learnable(), was_given_usual_time()

    def _read(self, query: Select[*tuple[Any, ...]]) -> Sequence[Trial]:
        return [trial_of(row) for row in self.session.execute(query)]


def select_trials(
    *more: ColumnElement[Any] | InstrumentedAttribute[Any],
    time: InstrumentedAttribute[float | None] = Measurement.latency_us,
    outcome: ColumnElement[str] | InstrumentedAttribute[str] = Measurement.outcome,
) -> Select[*tuple[Any, ...]]:
    """A query of rows that `trial_of` reads, with `more` columns where they are wanted: they may be long."""
    found, read = Measurement, (outcome.label("outcome"), time.label("latency_us"))
    columns = found.decisions, *read, found.origin, found.build_ms
    query = select(SketchRow.key.label("sketch"), *columns, *more)
    return query.join(SketchRow, SketchRow.id == found.sketch_id)


def trial_of(row: Row[*tuple[Any, ...]]) -> Trial:
    """A measured row as the value that all readers share, as far as its query asked."""
    sketch, packed, outcome, latency_us, origin, build_ms, *more = row
    known = row._mapping if more else {}  # a mapping a row is slow: a round reads thousands without
    return Trial(
        Candidate(sketch, unpack_decisions(packed)),
        Outcome.read(outcome),
        latency_us,
        origin,
        build_ms,
        run_us=unpack_times(known.get("run_us") or b""),
        error=known.get("error") or "",
        predicted=known.get("predicted"),
    )


def _learnable() -> tuple[ColumnElement[bool], ...]:
    return Measurement.kind.in_(_LEARNABLE), is_not_withdrawn(), undisturbed()
