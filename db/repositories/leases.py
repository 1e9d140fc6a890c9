"""Leases of rounds, job stages and planning: holders, losses, fencing tokens, and what next holders get."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, delete, exists, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from mallorn.core.errors import LeaseLost
from mallorn.core.states import WorkKind
from mallorn.core.values.trial import DecidedTask
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository, seconds_from_now
from mallorn.db.tables import FinishStep, Job, LeaseRow

# Limit of interruptions by a fault that the work itself may have caused.
MAX_LOSSES: Final = 3
# Limit of interruptions because the holder was killed or stopped responding (ADR 0028).
MAX_DEATHS: Final = 10
RESTING: Final = {"holder": None, "until": None, "due_at": None}
NOBODY: Final = ""


@dataclass(frozen=True, slots=True)
class WorkItem:
    """Work that one process does at a time: its kind, and its round, job or target."""

    kind: WorkKind
    subject: str

    @classmethod
    def for_round(cls, round_id: int) -> "WorkItem":
        return cls(WorkKind.ROUND, str(round_id))

    @classmethod
    def for_planning(cls, target_id: int) -> "WorkItem":
        return cls(WorkKind.PLAN, str(target_id))


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """Fencing token of a lease, by which writes of earlier holders are rejected.

    It names the holder, too: a restored database repeats attempt numbers, while
    holders from before the restore may still be working.
    """

    item: WorkItem
    attempt: int
    holder: str
    job_id: str = field(default="", compare=False)  # of the work that was claimed; planning has none


@dataclass(frozen=True, slots=True)
class Loss:
    """A lease that its holder lost; the work waits for another holder unless `is_given_up`."""

    hold: LeaseToken
    job_id: str
    is_given_up: bool


class Leases(Repository):
    """Leases of work. Transactions that lock a lease and a job lock the job first."""

    def add_or_reopen_work(self, item: WorkItem, job_id: str) -> None:
        """Add work, or reopen it without holder and losses, to be claimed from now on."""
        counts = {"losses": 0, "deaths": 0, "left_by": []}
        values = {"job_id": job_id, **counts, "holder": None, "until": None, "due_at": now()}
        insert = self.insert(LeaseRow).values(kind=item.kind, subject=item.subject, attempt=0, **values)
        self.session.execute(insert.on_conflict_do_update(index_elements=["kind", "subject"], set_=values))

    def claim(self, item: WorkItem, holder: str, lease_sec: float) -> LeaseToken | None:
        """Lease work that is free or whose lease expired; None while another holds it."""
        deaths = case((LeaseRow.until.is_not(None), LeaseRow.deaths + 1), else_=LeaseRow.deaths)
        lease = {"holder": holder, "until": seconds_from_now(lease_sec)}
        insert = self.insert(LeaseRow).values(
            kind=item.kind, subject=item.subject, attempt=1, losses=0, deaths=0, **lease
        )
        upsert = insert.on_conflict_do_update(
            index_elements=["kind", "subject"],
            set_={"attempt": LeaseRow.attempt + 1, "deaths": deaths, **lease},
            where=or_(LeaseRow.until.is_(None), LeaseRow.until < now()),
        )
        row = self.session.execute(upsert.returning(LeaseRow.attempt, LeaseRow.job_id)).one_or_none()
        return None if row is None else LeaseToken(item, row.attempt, holder, row.job_id or "")

    def renew(self, hold: LeaseToken, lease_sec: float) -> bool:
        """Extend a lease; False if it was taken back or its job was paused or cancelled."""
        return self._change(hold, until=seconds_from_now(lease_sec))

    def return_work(self, hold: LeaseToken, delay_sec: float = 0.0) -> bool:
        """Free unfinished work without counting a loss; workers may claim it after
        `delay_sec`. Return False if this lease no longer holds it."""
        return self._change(hold, **free_from(delay_sec))

    def leave_to_other_hosts(self, hold: LeaseToken, left_by: Sequence[str]) -> bool:
        """Free work that the hosts of workers `left_by` cannot do, without counting a loss.
        Return False if this lease no longer holds it."""
        return self._change(hold, left_by=[*left_by], **free_from(0.0))

    def end(self, hold: LeaseToken) -> bool:
        """Free work that is done; False if this lease no longer holds it."""
        return self._change(hold, **RESTING)

    def close_work(self, kinds: Collection[WorkKind], subjects: Collection[str]) -> None:
        """Close work, whichever process holds it; the holder's next renewal fails."""
        conditions = LeaseRow.kind.in_(kinds), self.is_among(LeaseRow.subject, subjects)
        self.execute_and_count(update(LeaseRow).where(*conditions).values(RESTING))

    def record_loss(self, hold: LeaseToken, limit: int, is_death: bool = False) -> Loss | None:
        """Free work and count a loss, or a death if its holder was killed; None if not held."""
        count = LeaseRow.deaths if is_death else LeaseRow.losses
        return next(iter(self._free_and_count_losses(is_row_held_by(hold), count, limit)), None)

    def jobs_with_expired_leases(self) -> Sequence[str | None]:
        """Return the jobs with expired leases; None stands for work that belongs to no job."""
        jobs = select(LeaseRow.job_id).where(_has_expired()).distinct().order_by(LeaseRow.job_id)
        return self.session.scalars(jobs).all()

    def free_expired_work(self, job_id: str | None) -> Sequence[Loss]:
        """Free a job's expired work, count its holders' deaths; None stands for no job."""
        self.lock_jobs(select(Job.id).where(Job.id == job_id))
        is_of_job = LeaseRow.job_id.is_not_distinct_from(job_id)
        return self._free_and_count_losses(and_(_has_expired(), is_of_job), LeaseRow.deaths, MAX_DEATHS)

    def has_other_work_waiting(
        self, job_id: str, kinds: Collection[WorkKind], longer_than_sec: float
    ) -> bool:
        waiting = LeaseRow.until.is_(None), LeaseRow.due_at < seconds_from_now(-longer_than_sec)
        other_jobs = LeaseRow.kind.in_(kinds), LeaseRow.job_id != job_id
        return bool(self.session.scalar(select(exists(select(LeaseRow.kind).where(*waiting, *other_jobs)))))

    def lock(self, kind: WorkKind, subjects: Sequence[str]) -> None:
        """Lock the rows of work until the transaction ends, so that no worker claims it."""
        rows = select(LeaseRow.subject).where(
            LeaseRow.kind == kind, self.is_among(LeaseRow.subject, subjects)
        )
        self.session.execute(rows.order_by(LeaseRow.subject).with_for_update(key_share=True)).all()

    def holds(self, hold: LeaseToken) -> bool:
        """Return whether this lease still holds its work."""
        return bool(self.session.scalar(select(is_still_held(hold))))

    def get(self, item: WorkItem) -> LeaseRow:
        return self.session.get_one(LeaseRow, (item.kind, item.subject))

    def _change(self, hold: LeaseToken, **values: Any) -> bool:
        return self.execute_and_count(update(LeaseRow).where(is_row_held_by(hold)).values(values)) == 1

    def _free_and_count_losses(
        self, condition: ColumnElement[bool], count: InstrumentedAttribute[int], limit: int
    ) -> Sequence[Loss]:
        statement = update(LeaseRow).where(condition).values({count.key: count + 1, **free_from(0.0)})
        losses = []
        rows = self.session.scalars(statement.returning(LeaseRow)).all()
        for row in sorted(rows, key=lambda row: (row.kind, len(row.subject), row.subject)):
            item, is_given_up = WorkItem(WorkKind(row.kind), row.subject), getattr(row, count.key) >= limit
            losses.append(Loss(LeaseToken(item, row.attempt, NOBODY), row.job_id or "", is_given_up))
            if is_given_up:
                self.close_work([item.kind], [item.subject])
        return losses


def free_from(delay_sec: float) -> dict[str, object]:
    """Return the columns of free work that workers may claim after `delay_sec`. Work that
    no worker claims, such as planning, is never due."""
    due_at = case((LeaseRow.due_at.is_not(None), seconds_from_now(delay_sec)))
    return RESTING | {"due_at": due_at}


def _has_expired() -> ColumnElement[bool]:
    # A newer version's control process takes back the kinds of work that only it knows.
    return and_(LeaseRow.until < now(), LeaseRow.kind.in_(WorkKind))


def is_row_held_by(hold: LeaseToken) -> ColumnElement[bool]:
    """Return the SQL condition that this lease still holds the row's work."""
    item = hold.item
    is_item = LeaseRow.kind == item.kind, LeaseRow.subject == item.subject
    is_token = LeaseRow.attempt == hold.attempt, LeaseRow.holder == hold.holder
    return and_(*is_item, *is_token, LeaseRow.until.is_not(None))


def is_still_held(hold: LeaseToken) -> ColumnElement[bool]:
    """Return the SQL condition, for any query, that this lease still holds its work."""
    return exists(select(LeaseRow.kind).where(is_row_held_by(hold)))


class FinishSteps(Repository):
    """Interim decisions of unfinished jobs, one per task, from which another worker can continue."""

    def read_decisions(self, job_id: str, trials: int, code: str) -> Mapping[int, DecidedTask]:
        """Return a job's decisions by task, made after this many trials and with this code.

        Others are left out: with more trials or other code, other candidates may win.
        """
        query = select(FinishStep.task_id, FinishStep.decided)
        conditions = FinishStep.job_id == job_id, FinishStep.trials == trials
        rows = self.session.execute(query.where(*conditions))
        return {row.task_id: row.decided for row in rows if row.decided.code == code}

    def store(self, hold: LeaseToken, task_id: int, trials: int, decision: DecidedTask) -> None:
        """Store a decision. Raises LeaseLost if this lease no longer holds the stage."""
        job_id = hold.item.subject
        self.lock_jobs([job_id])
        if not Leases(self.session).holds(hold):
            message = f"the finish of job {job_id} is no longer leased to attempt {hold.attempt}"
            raise LeaseLost(message)
        values = {"trials": trials, "decided": decision}
        insert = self.insert(FinishStep).values(task_id=task_id, job_id=job_id, **values)
        upsert = insert.on_conflict_do_update(index_elements=["task_id"], set_=values)
        self.session.execute(upsert)

    def forget(self, job_id: str) -> int:
        """Delete the decisions of a job's finish stage; return how many there were."""
        return self.execute_and_count(delete(FinishStep).where(FinishStep.job_id == job_id))
