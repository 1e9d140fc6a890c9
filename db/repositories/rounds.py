"""Rounds: plan, claim and close them; changes by a worker need the current lease."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, case, exists, func, null, select, update
from sqlalchemy.orm import InstrumentedAttribute, aliased

from mallorn.core.job_options import DETACHED
from mallorn.core.states import JobState, MeasurementKind, RoundState, WorkKind
from mallorn.core.values.decision_log import DeviceUse, PlannedRound, RoundStats
from mallorn.core.values.trial import Proposal
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.leases import Leases, LeaseToken, WorkItem, is_still_held
from mallorn.db.tables import Context, CostModelRow, Job, Measurement, Round, TargetRow, Task, Workload

OPEN = (RoundState.QUEUED, RoundState.LEASED)
Id = int | ColumnElement[int] | InstrumentedAttribute[int]
ENDED: Final[dict[str, object]] = {"finished_at": now(), "proposals": null()}


class Rounds(Repository):
    """Rounds of all jobs. Changes with an old fencing token are rejected."""

    def add(self, job: Job, workload_id: int, plan: PlannedRound, searcher: str) -> Round:
        """Queue a round of a locked job."""
        new = self.insert(Round).values(
            **asdict(replace(plan, searcher=searcher)),
            job_id=job.id,
            workload_id=workload_id,
            target_id=job.target_id,
            seen_upto=select_newest_measurement(workload_id, job.target_id).scalar_subquery(),
            detached=job.options["measurer"] == DETACHED,
            state=RoundState.QUEUED,
            error="",
        )
        row = self.session.scalars(new.returning(Round)).one()
        Leases(self.session).add_or_reopen_work(WorkItem.for_round(row.id), job.id)
        return row

    def get(self, round_id: int) -> Round:
        """Return the round with this id. Raises ``sqlalchemy.exc.NoResultFound`` if none."""
        return self.session.get_one(Round, round_id)

    def load(self, round_id: int) -> Row[*tuple[Any, ...]]:
        """Return a round, its job, task, workload and target, its job's measuring context and
        its cost model. The last two are None if there is none."""
        query = (
            select(Round, Job, Task, Workload, TargetRow, Context, CostModelRow)
            .join(Job, Job.id == Round.job_id)
            .join(Task, Task.id == Round.task_id)
            .join(Workload, Workload.id == Round.workload_id)
            .join(TargetRow, TargetRow.id == Round.target_id)
            .join(Context, Context.id == Job.context_id, isouter=True)
            .join(CostModelRow, CostModelRow.id == Round.cost_model_id, isouter=True)
        )
        return self.session.execute(query.where(Round.id == round_id)).one()

    def queued(self, job_id: str) -> Sequence[int]:
        """Return the ids of the job's queued rounds, oldest first."""
        conditions = Round.job_id == job_id, Round.state == RoundState.QUEUED
        return self.session.scalars(select(Round.id).where(*conditions).order_by(Round.id)).all()

    def claim(self, round_id: int, worker: str, lease_sec: float) -> LeaseToken | None:
        """Lease a queued round; None if it is not queued or its job does not tune."""
        self._lock_job_of(round_id)
        leases, item = Leases(self.session), WorkItem.for_round(round_id)
        leases.lock(item.kind, [item.subject])
        return leases.claim(item, worker, lease_sec) if self.begin(round_id, worker) else None

    def begin(self, round_id: int, worker: str) -> bool:
        """Record that a worker begins a queued round whose lease's row is locked; False if
        the round is not queued any more or its job does not tune."""
        is_tuning = select(Job.id).where(Job.id == Round.job_id, Job.state == JobState.TUNING).exists()
        is_free = Round.id == round_id, Round.state == RoundState.QUEUED, is_tuning
        values = {"state": RoundState.LEASED, "worker": worker, "started_at": now()}
        newest = select_newest_measurement(Round.workload_id, Round.target_id)
        is_new = Round.started_at.is_(None), newest.scalar_subquery()
        values["seen_upto"] = case(is_new, else_=Round.seen_upto)
        return self.execute_and_count(update(Round).where(*is_free).values(values)) == 1

    def store_inputs(self, round_id: int, cost_model_id: int | None) -> None:
        """Store, at its first claim, a round's cost model."""
        self.execute_and_count(update(Round).where(Round.id == round_id).values(cost_model_id=cost_model_id))

    def list_in_flight(self, row: Round) -> Sequence[Round]:
        """Return the other open rounds of a round's workload, oldest first."""
        is_other = Round.id != row.id, *_in_flight(Round, row.workload_id, row.target_id)
        return self.session.scalars(select(Round).where(*is_other).order_by(Round.id)).all()

    def lock_in_flight(self, row: Round) -> Sequence[Round]:
        """Lock the open rounds of a round's workload, so that none stores proposals."""
        return self._lock(*_in_flight(Round, row.workload_id, row.target_id))

    def store_proposals(
        self, hold: LeaseToken, known: Collection[int], upto: int, proposals: Sequence[Proposal], size: int
    ) -> bool:
        """Store a round's proposals and size; return False if the lease is lost, if another
        round than those `known` has proposals, or if a measurement came after `upto`."""
        other, place = aliased(Round), (Round.workload_id, Round.target_id)
        is_unknown = other.proposals.is_not(None), ~self.is_among(other.id, known)
        conditions = (
            *(Round.id == int(hold.item.subject), is_still_held(hold)),
            ~exists(select(other.id).where(*_in_flight(other, *place), *is_unknown)),
            select_newest_measurement(*place).scalar_subquery() <= upto,
        )
        update_query = update(Round).where(*conditions).values(proposals=proposals, size=size)
        return self.execute_and_count(update_query) == 1

    def change_inputs(self, hold: LeaseToken, **changes: Any) -> bool:
        """Change the inputs of a round while its lease is held; return whether it is."""
        round_id = int(hold.item.subject)
        self._lock_job_of(round_id)
        is_held = Round.id == round_id, is_still_held(hold)
        return self.execute_and_count(update(Round).where(*is_held).values(changes)) == 1

    def close(
        self, hold: LeaseToken, state: RoundState, stats: RoundStats | None = None, error: str = ""
    ) -> bool:
        """End a round; False if unheld."""
        round_id = int(hold.item.subject)
        self._lock_job_of(round_id)
        return Leases(self.session).end(hold) and self.move(round_id, state, error=error, stats=stats)

    def give_back(self, hold: LeaseToken, error: str = "", delay_sec: float = 0.0) -> bool:
        """Free a round for another attempt, after `delay_sec`; False if unheld."""
        round_id = int(hold.item.subject)
        self._lock_job_of(round_id)
        is_held = Leases(self.session).return_work(hold, delay_sec)
        return is_held and self.move(round_id, RoundState.QUEUED, error=error)

    def move(self, round_id: int, state: RoundState, **values: Any) -> bool:
        """Change the state of a round, in the transaction that ended its lease."""
        values |= {"worker": None} if state is RoundState.QUEUED else ENDED
        update_query = update(Round).where(Round.id == round_id).values(state=state, **values)
        return self.execute_and_count(update_query) == 1

    def cancel_queued(self, job_id: str | None = None) -> Sequence[int]:
        """Cancel queued rounds of this job, or of all that do not tune; return the ids."""
        not_tuning = Round.job_id.in_(select(Job.id).where(Job.state != JobState.TUNING))
        queued = Round.state == RoundState.QUEUED, not_tuning if job_id is None else Round.job_id == job_id
        # Two queries, because one that names jobs twice once took 30 s beside ten thousand jobs.
        job_ids = self.session.scalars(select(Round.job_id).where(*queued).distinct()).all()
        if not job_ids:
            return []
        self.lock_jobs(job_ids)
        return self._cancel(*queued)

    def stats(self, job_id: str) -> Sequence[RoundStats]:
        """Return the statistics of a job's rounds that have any, in planning order."""
        query = select(Round.stats).where(Round.job_id == job_id, Round.stats.is_not(None))
        return [stats for stats in self.session.scalars(query.order_by(Round.index)) if stats is not None]

    def device_use(self, job_id: str) -> DeviceUse | None:
        """Return how a job's done rounds used their devices; None if no device is known."""
        query = select(Round.stats, Round.started_at, Round.finished_at).where(Round.job_id == job_id)
        return DeviceUse.of_rounds(
            (stats, started_at, finished_at)
            for stats, started_at, finished_at in self.session.execute(query)
            if stats is not None and started_at is not None and finished_at is not None
        )

    def cancel_open(self, job_id: str) -> int:
        """Cancel a job's open rounds; workers notice when they next renew their leases."""
        self.lock_jobs([job_id])
        return len(self._cancel(Round.job_id == job_id, Round.state.in_(OPEN)))

    def _cancel(self, *conditions: ColumnElement[bool]) -> Sequence[int]:
        open_ids = self.session.scalars(select(Round.id).where(*conditions)).all()
        Leases(self.session).lock(WorkKind.ROUND, [str(round_id) for round_id in open_ids])
        self._lock(*conditions)
        rounds = update(Round).where(*conditions).values(state=RoundState.CANCELLED, **ENDED)
        ids = sorted(self.session.scalars(rounds.returning(Round.id)))
        Leases(self.session).close_work([WorkKind.ROUND], [str(round_id) for round_id in ids])
        return ids

    def done_slots(self, round_id: int) -> set[int]:
        """Return the slots whose trial is committed, by any attempt."""
        trial = Measurement.round_id == round_id, Measurement.kind == MeasurementKind.TRIAL
        return set(self.session.scalars(select(Measurement.slot).where(*trial)))

    def _lock(self, *conditions: ColumnElement[bool]) -> Sequence[Round]:
        """Lock rounds in the order of their ids, after rows of their jobs and leases."""
        rows = select(Round).where(*conditions).order_by(Round.id)
        return self.session.scalars(rows.with_for_update(key_share=True)).all()

    def _lock_job_of(self, round_id: int) -> None:
        self.lock_jobs(select(Round.job_id).where(Round.id == round_id))


def select_newest_measurement(workload_id: Id, target_id: Id) -> Select[int]:
    """Return the query for the id of a workload's newest measurement on a target, or 0."""
    conditions = Measurement.workload_id == workload_id, Measurement.target_id == target_id
    return select(func.coalesce(func.max(Measurement.id), 0)).where(*conditions)


def _in_flight(row: type[Round], workload: Id, target: Id) -> tuple[ColumnElement[bool], ...]:
    return row.workload_id == workload, row.target_id == target, row.state.in_(OPEN)
