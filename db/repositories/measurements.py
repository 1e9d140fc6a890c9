"""Store measurements under a lease, import those of other datasets, and list them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session

from mallorn.core.errors import LeaseLost
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.targets import Target
from mallorn.core.values.dataset import Record
from mallorn.core.values.manifest import MeasuredOn
from mallorn.core.values.trial import Trial
from mallorn.db.measurement_codec import pack_decisions, pack_times, unpack_decisions, unpack_times
from mallorn.db.repositories.base import Page, Repository, equalities, is_owned_by
from mallorn.db.repositories.leases import Leases, LeaseToken, is_row_held_by
from mallorn.db.repositories.measurement_filters import BUILD_FAILURES, TrialLimits
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.snapshots import Sources
from mallorn.db.repositories.targets import Targets
from mallorn.db.tables import (
    Device,
    Job,
    LeaseRow,
    Measurement,
    Round,
    SketchRow,
    SourceDataset,
    TargetRow,
    Workload,
)

IDENTITY: Final = ("source_id", "source_row", "created_at")


@dataclass(frozen=True, slots=True)
class NewMeasurement:
    """A trial to store; without context and device, it failed before reaching a device."""

    slot: int  # position in the round's proposals
    trial: Trial
    sketch_id: int
    context_id: int | None = None
    device_id: int | None = None
    limits: TrialLimits | None = None  # under which it was tried; None: unknown

    def __post_init__(self) -> None:
        if (self.trial.outcome is Outcome.OK) != bool(self.trial.run_us):
            raise ValueError(f"slot {self.slot}: only the outcome ok has run times")


class Measurements(Repository):
    """The dataset's rows. None is ever deleted; times may become upper bounds later."""

    def add_trials(self, hold: LeaseToken, rows: Sequence[NewMeasurement]) -> int:
        """Store trials of a round, one per slot, and return how many were new.

        Raises LeaseLost if `hold` is not the round's lease any more, so that a worker that
        lost its lease cannot write after its successor.
        """
        # The lease's row is locked, so that no other attempt begins before these rows are committed.
        round_id, is_held = int(hold.item.subject), is_row_held_by(hold)
        query = select(Round).join(LeaseRow, is_held).where(Round.id == round_id)
        row = self.session.scalars(query.with_for_update(of=LeaseRow, key_share=True)).one_or_none()
        if row is None:
            raise LeaseLost(f"round {round_id} is no longer leased to attempt {hold.attempt}")
        names = "job_id", "workload_id", "target_id"
        columns = {"round_id": row.id, **{name: getattr(row, name) for name in names}}
        return len(self._add(columns | {"kind": MeasurementKind.TRIAL}, rows))

    def add_finish(
        self, hold: LeaseToken, workload_id: int, target_id: int, rows: Sequence[NewMeasurement]
    ) -> Sequence[int]:
        """Store repeated measurements of a job's finish stage; return their ids by slot.

        Raises LeaseLost if `hold` is not the finish stage's lease any more.
        """
        job_id = hold.item.subject
        self.lock_jobs([job_id])
        if not Leases(self.session).holds(hold):
            raise LeaseLost(f"the finish of job {job_id} is no longer leased to attempt {hold.attempt}")
        columns = {"job_id": job_id, "round_id": None, "workload_id": workload_id, "target_id": target_id}
        return self._add(columns | {"kind": MeasurementKind.FINISH}, rows)

    def mark_disturbed_slots(self, round_id: int, shares: Mapping[int, float | None]) -> None:
        """Turn times of a round into upper bounds; `shares`: disturbed share by slot."""
        for slot, share in shares.items():
            conditions = (
                Measurement.round_id == round_id,
                Measurement.slot == slot,
                Measurement.kind == MeasurementKind.TRIAL,
            )
            self.mark_as_bounds(share, *conditions)

    def mark_as_bounds(self, share: float | None, *conditions: ColumnElement[bool]) -> int:
        """Turn times into upper bounds; return how many rows this changed. `share` is the
        share of the time that was disturbed, None if unknown."""
        bound = {"bound_us": Measurement.latency_us, "latency_us": None, "disturbed": share}
        rows = update(Measurement).where(*conditions, Measurement.latency_us.is_not(None))
        return self.execute_and_count(rows.values(bound))

    def _add(self, common: Mapping[str, object], rows: Sequence[NewMeasurement]) -> Sequence[int]:
        if not rows:
            return []
        values = [{**common, **_columns(row)} for row in sorted(rows, key=lambda row: row.slot)]
        insert = self.insert(Measurement).on_conflict_do_nothing(index_elements=["round_id", "slot", "kind"])
        one_for_all = insert.returning(Measurement.id).execution_options(render_nulls=True)
        return sorted(self.session.scalars(one_for_all, values))


def _columns(row: NewMeasurement) -> dict[str, object]:
    trial, limits = row.trial, row.limits
    # A failed build depends on its builder and its time limit, a timeout only on its limit.
    built_by, limit_sec = None, None
    if limits is not None and trial.outcome in BUILD_FAILURES:
        built_by, limit_sec = limits.builder, limits.build_sec
    elif limits is not None and trial.outcome is Outcome.RUN_TIMEOUT:
        limit_sec = limits.run_sec
    return {
        "slot": row.slot,
        "sketch_id": row.sketch_id,
        "decisions": pack_decisions(trial.candidate.decisions),
        "outcome": trial.outcome,
        "latency_us": None if trial.is_bound else trial.latency_us,
        "bound_us": trial.latency_us if trial.is_bound else None,
        "disturbed": trial.disturbed,
        "run_us": pack_times(trial.run_us) if trial.run_us else None,
        "error": trial.error or None,
        "built_by": built_by,
        "limit_sec": limit_sec,
        "context_id": row.context_id,
        "device_id": row.device_id,
        "build_ms": trial.build_ms,
        "run_ms": trial.run_ms,
        "predicted": trial.predicted,
        "origin": trial.origin,
    }


class ForeignRows(Repository):
    """Rows of other datasets, identified by their dataset, id there and date."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._references: dict[tuple[Target, str, str | None], dict[str, object]] = {}

    def references(self, target: Target, dataset: str, measured_on: MeasuredOn | None) -> dict[str, object]:
        """Return a row's columns for its target, dataset and context; insert what is new.

        `measured_on` is None for a candidate that failed before it reached a device.
        """
        key = target, dataset, None if measured_on is None else measured_on.model_dump_json()
        if key not in self._references:
            target_id, context_id = Targets(self.session).ensure(target).id, None
            if measured_on is not None:
                context_id = Contexts(self.session).ensure(target_id, **measured_on.model_dump()).id
            source_id = Sources(self.session).ensure(dataset)
            self._references[key] = {"source_id": source_id, "target_id": target_id, "context_id": context_id}
        return self._references[key]

    def add(self, rows: Sequence[Mapping[str, object]]) -> int:
        """Store rows that are not stored yet; return their number."""
        # Leave out rows that were measured here. Compare dates, too: a copy of this database reuses ids.
        own_id = self.session.scalar(select(SourceDataset.id).where(SourceDataset.own))
        own_ids = [row["source_row"] for row in rows if row["source_id"] == own_id]
        own_rows: set[tuple[object, ...]] = set()
        if own_ids:
            is_own = self.is_among(Measurement.id, own_ids), Measurement.source_id.is_(None)
            pairs = self.session.execute(select(Measurement.id, Measurement.created_at).where(*is_own))
            own_rows = {(own_id, *pair) for pair in pairs}
        new_rows = [dict(row) for row in rows if tuple(row[name] for name in IDENTITY) not in own_rows]
        if not new_rows:
            return 0
        insert = self.insert(Measurement).on_conflict_do_nothing(
            index_elements=IDENTITY, index_where=Measurement.source_id.is_not(None)
        )
        return self.execute_for_rows(insert, new_rows)


class Records(Repository):
    def page(
        self,
        owner: str | None,
        *,
        job_id: str | None = None,
        workload: str | None = None,
        target: str | None = None,
        outcome: Outcome | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Page[Record]:
        """Return a page of an owner's measurements, newest first; `workload` and `target` are keys."""
        names = Workload.key, Workload.name, TargetRow.text, SketchRow.key, Device.name
        query = (
            select(Measurement, *names)
            .join(Workload, Workload.id == Measurement.workload_id)
            .join(TargetRow, TargetRow.id == Measurement.target_id)
            .join(SketchRow, SketchRow.id == Measurement.sketch_id)
            .join(Device, Device.id == Measurement.device_id, isouter=True)
            .order_by(Measurement.id.desc())
            .limit(limit + 1)
        )
        if owner is not None:
            query = query.where(Measurement.job_id.in_(select(Job.id).where(is_owned_by(owner))))
        columns = Measurement.job_id, Measurement.outcome, Workload.key, TargetRow.key
        query = query.where(*equalities(columns, (job_id, outcome, workload, target)))
        if cursor is not None:
            query = query.where(Measurement.id < Page.decode_cursor(cursor, int)[0])
        records = [
            Record.from_row(
                measurement,
                workload=workload_key,
                workload_name=workload_name,
                target=target_text,
                sketch=sketch,
                decisions=list(unpack_decisions(measurement.decisions)),
                outcome=Outcome.read(measurement.outcome),
                run_us=list(unpack_times(measurement.run_us or b"")),
                device=device,
            )
            for measurement, workload_key, workload_name, target_text, sketch, device in (
                self.session.execute(query)
            )
        ]
        return Page.of(records, limit, lambda record: (record.id,))
