"""Who holds which piece of work: leases, losses and fencing tokens of rounds, stages and planning alike."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from db.database_clock import now
from db.repositories.base import Repository, until
from db.tables import Job, LeaseRow
from mallorn.core.states import WorkKind

# The work broke off, by a fault that may be its own.
MAX_LOSSES: Final = 3
# Its holder was killed or went silent, which says little about the work (ADR 0028).
MAX_DEATHS: Final = 10
RESTING: Final = {"holder": None, "until": None, "sent_at": None}
NOBODY: Final = ""
# What waits for nobody, as planning, goes on to do so; the rest is sent by the next sweep.
FREED: Final = RESTING | {"sent_at": case((LeaseRow.sent_at.is_not(None), 0.0))}


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What one process at a time does: a round, the import or the finish of a job, a target's planning."""

    kind: WorkKind
    subject: str

    @classmethod
    def round(cls, round_id: int) -> "WorkItem":
        return cls(WorkKind.ROUND, str(round_id))

    @classmethod
    def plan(cls, target_id: int) -> "WorkItem":
        return cls(WorkKind.PLAN, str(target_id))


@dataclass(frozen=True, slots=True)
class Token:
    """What fences a claim: an older attempt is refused, and another's that has the same number.

    A database that was restored counts its rounds and attempts once more, while whoever holds those of before
    may still work.
    """

    attempt: int
    holder: str


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """A claim on a piece of work."""

    item: WorkItem
    token: Token

    @property
    def attempt(self) -> int:
        return self.token.attempt


@dataclass(frozen=True, slots=True)
class Loss:
    """A hold whose holder went silent or broke off; its work waits for another, or is given up."""

    hold: LeaseToken
    job_id: str
    given_up: bool


class Leases(Repository):
    """The table of held work. Whoever locks a row of it and one of a job locks the job's first."""

    def open(self, item: WorkItem, job_id: str) -> None:
        """There is work, whose message goes out now. What it lost before does not count any more."""
        counts = {"losses": 0, "deaths": 0, "left_by": []}
        fresh = {"job_id": job_id, **counts, "holder": None, "until": None, "sent_at": now()}
        insert = self.insert(LeaseRow).values(kind=item.kind, subject=item.subject, attempt=0, **fresh)
        self.session.execute(insert.on_conflict_do_update(index_elements=["kind", "subject"], set_=fresh))

    def claim(self, item: WorkItem, holder: str, lease_sec: float) -> LeaseToken | None:
        """Take work that is free, or whose holder went silent; None while someone holds it."""
        dead = case((LeaseRow.until.is_not(None), LeaseRow.deaths + 1), else_=LeaseRow.deaths)
        lease = {"holder": holder, "until": until(lease_sec)}
        insert = self.insert(LeaseRow).values(
            kind=item.kind, subject=item.subject, attempt=1, losses=0, deaths=0, **lease
        )
        upsert = insert.on_conflict_do_update(
            index_elements=["kind", "subject"],
            set_={"attempt": LeaseRow.attempt + 1, "deaths": dead, **lease},
            where=or_(LeaseRow.until.is_(None), LeaseRow.until < now()),
        )
        attempt = self.session.execute(upsert.returning(LeaseRow.attempt)).scalar_one_or_none()
        return None if attempt is None else LeaseToken(item, Token(attempt, holder))

    def renew(self, hold: LeaseToken, lease_sec: float) -> bool:
        """False when it is no longer held: taken back, paused or cancelled."""
        return self._change(hold, until=until(lease_sec))

    def give_back(self, hold: LeaseToken, later: bool = False) -> bool:
        """Free unfinished work, which is no loss: a sweep sends it, soon or `later`. False: not ours."""
        return self._change(hold, **FREED | ({"sent_at": now()} if later else {}))

    def leave(self, hold: LeaseToken, left_by: Sequence[str]) -> bool:
        """Free work that these could not do for what their hosts lack, which is no loss of the work's."""
        return self._change(hold, left_by=[*left_by], **FREED)

    def end(self, hold: LeaseToken) -> bool:
        """The work is over; False when it was not ours any more."""
        return self._change(hold, **RESTING)

    def rest(self, kinds: Collection[WorkKind], subjects: Collection[str]) -> None:
        """This work is over, or stopped, whoever holds it: its holder learns it from the next renewal."""
        which = LeaseRow.kind.in_(kinds), self.among(LeaseRow.subject, subjects)
        self.changed(update(LeaseRow).where(*which).values(RESTING))

    def lose(self, hold: LeaseToken, most: int = MAX_LOSSES) -> Loss | None:
        """Free work that broke off, and count it; None when it was not ours any more."""
        return next(iter(self._lose(mine(hold), LeaseRow.losses, most)), None)

    def die(self, hold: LeaseToken) -> Loss | None:
        """Free work that a kill from outside cut short, and count it; None when it was not ours any more."""
        return next(iter(self._lose(mine(hold), LeaseRow.deaths, MAX_DEATHS)), None)

    def silent_jobs(self) -> Sequence[str | None]:
        """Jobs of which work is held by who went silent; None stands for the work of no job."""
        jobs = select(LeaseRow.job_id).where(_silent()).distinct().order_by(LeaseRow.job_id)
        return self.session.scalars(jobs).all()

    def expire(self, job_id: str | None) -> Sequence[Loss]:
        """Free all work of a job, or of none, whose holder went silent, and count it."""
        self.lock_jobs(select(Job.id).where(Job.id == job_id))
        theirs = LeaseRow.job_id.is_not_distinct_from(job_id)
        return self._lose(and_(_silent(), theirs), LeaseRow.deaths, MAX_DEATHS)

    def waiting(self, older_than_sec: float, most: int | None = None) -> Sequence[WorkItem]:
        """Work that nobody holds and whose message went out long ago: each owner's first of a kind go first.

        Of an owner's that of urgent jobs, then the oldest.
        """
        old = LeaseRow.until.is_(None), LeaseRow.sent_at < until(-older_than_sec), LeaseRow.kind.in_(WorkKind)
        # Rounds are numbered in the order they were planned; their jobs' ages say nothing about it.
        age = case((LeaseRow.kind != WorkKind.ROUND, Job.created_at), else_=0.0)
        order = Job.priority.desc(), age, func.length(LeaseRow.subject), LeaseRow.subject
        query = select(LeaseRow.kind, LeaseRow.subject).join(Job, Job.id == LeaseRow.job_id)
        place = func.row_number().over(partition_by=(LeaseRow.kind, Job.owner), order_by=order)
        rows = self.session.execute(query.where(*old).order_by(place, *order).limit(most))
        return [WorkItem(WorkKind(kind), subject) for kind, subject in rows]

    def others_wait(self, job_id: str, kinds: Collection[WorkKind], longer_than_sec: float) -> bool:
        """Whether work of these kinds has been waiting for a worker for so long, of other jobs."""
        waits = LeaseRow.until.is_(None), LeaseRow.sent_at < until(-longer_than_sec)
        others = LeaseRow.kind.in_(kinds), LeaseRow.job_id != job_id
        return bool(self.session.scalar(select(exists(select(LeaseRow.kind).where(*waits, *others)))))

    def mark_sent(self, items: Collection[WorkItem]) -> None:
        """Messages for this work go out now."""
        for kind in {item.kind for item in items}:
            subjects = [item.subject for item in items if item.kind is kind]
            these = LeaseRow.kind == kind, self.among(LeaseRow.subject, subjects)
            self.changed(update(LeaseRow).where(*these).values(sent_at=now()))

    def get(self, item: WorkItem) -> LeaseRow:
        """The row of work that was opened or claimed."""
        return self.session.get_one(LeaseRow, (item.kind, item.subject))

    def _change(self, hold: LeaseToken, **values: Any) -> bool:
        return self.changed(update(LeaseRow).where(mine(hold)).values(values)) == 1

    def _lose(
        self, which: ColumnElement[bool], count: InstrumentedAttribute[int], most: int
    ) -> Sequence[Loss]:
        lost = update(LeaseRow).where(which).values({count.key: count + 1, **FREED})
        losses = []
        rows = self.session.scalars(lost.returning(LeaseRow)).all()
        for row in sorted(rows, key=lambda row: (row.kind, len(row.subject), row.subject)):
            item, given_up = WorkItem(WorkKind(row.kind), row.subject), getattr(row, count.key) >= most
            losses.append(Loss(LeaseToken(item, Token(row.attempt, NOBODY)), row.job_id or "", given_up))
            if given_up:
                self.rest([item.kind], [item.subject])
        return losses


def _silent() -> ColumnElement[bool]:
    # What a newer version holds besides is taken back by its own control.
    return and_(LeaseRow.until < now(), LeaseRow.kind.in_(WorkKind))


def mine(hold: LeaseToken) -> ColumnElement[bool]:
    """Whether a row of held work is held by this attempt."""
    item = hold.item
    same = LeaseRow.kind == item.kind, LeaseRow.subject == item.subject
    claimed = LeaseRow.attempt == hold.attempt, LeaseRow.holder == hold.token.holder
    return and_(*same, *claimed, LeaseRow.until.is_not(None))


def held(hold: LeaseToken) -> ColumnElement[bool]:
    """Whether this attempt holds its work still: the fence of what it writes to other tables."""
    return exists(select(LeaseRow.kind).where(mine(hold)))
