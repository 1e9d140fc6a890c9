"""Sign out, ban, readmit and erase owners, and count what they use of their quotas."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, exists, func, select, update
from sqlalchemy.orm import class_mapper

from db.database_clock import now
from db.repositories.base import Repository
from db.repositories.fail_pause_cancel_job import cancel
from db.repositories.jobs import ACTIVE
from db.session import Database
from db.tables import ApiKeyRow, AuditRow, Job, Measurement, Model, PutOut, SignIn
from mallorn.core.api_keys import OwnerDeed, digest_of, new_id
from mallorn.core.errors import Conflict
from mallorn.core.states import JobState, MeasurementKind
from mallorn.core.values.access_control import OwnerStatus

NAMED: Final[tuple[Any, ...]] = (
    ApiKeyRow.owner,
    SignIn.owner,
    Job.owner,
    Model.owner,
    AuditRow.owner,
    AuditRow.subject,
)
BATCH: Final = 200  # rows per transaction, because an owner may have ten thousand


class Owners(Repository):
    """Bans owners, ends their keys, sign-ins and jobs, and replaces their names."""

    def is_put_out(self, owner: str) -> bool:
        """Return whether this owner is banned, so that no key or sign-in is accepted."""
        return bool(self.session.scalar(select(exists().where(PutOut.owner_digest == digest_of(owner)))))

    def list(self) -> list[OwnerStatus]:
        """Return all owners with a key, a sign-in or a job, past or present, by name."""
        ban_times = dict(self.session.execute(select(PutOut.owner_digest, PutOut.at)).all())
        names = {name for column in NAMED[:3] for name in self.session.scalars(select(column).distinct())}
        return [OwnerStatus(owner=name, put_out_at=ban_times.get(digest_of(name))) for name in sorted(names)]

    def sign_out(self, owner: str) -> None:
        """End all sign-ins of an owner, by any key or identity provider."""
        self.changed(delete(SignIn).where(SignIn.owner == owner))

    def put_out(self, owner: str) -> None:
        """Ban an owner: revoke all keys permanently and end all sign-ins."""
        row = self.insert(PutOut).values(owner_digest=digest_of(owner))
        self.changed(row.on_conflict_do_nothing())
        active_keys = ApiKeyRow.owner == owner, ApiKeyRow.revoked_at.is_(None)
        self.changed(update(ApiKeyRow).where(*active_keys).values(revoked_at=now()))
        self.sign_out(owner)

    def let_in(self, owner: str) -> None:
        """Lift an owner's ban: the owner may sign in and get new keys; old keys stay revoked."""
        self.changed(delete(PutOut).where(PutOut.owner_digest == digest_of(owner)))

    def cancel(self, owner: str) -> bool:
        """Cancel up to BATCH unfinished jobs of an owner; return whether there were any."""
        unfinished = Job.owner == owner, Job.state.in_((*ACTIVE, JobState.PAUSED)), Job.deleted_at.is_(None)
        jobs = self.session.scalars(select(Job.id).where(*unfinished).order_by(Job.id).limit(BATCH)).all()
        for job_id in jobs:
            with suppress(Conflict):  # the job has ended meanwhile
                cancel(self.session, job_id, None, "as its owner was put out")
        return bool(jobs)

    def rename(self, column: Any, owner: str, name: str) -> bool:
        """Replace an owner's name in this column of up to BATCH rows; return whether there were any."""
        table = column.class_
        key = class_mapper(table).primary_key[0]
        rows = self.session.scalars(select(key).where(column == owner).limit(BATCH)).all()
        values = {column.key: name} | ({"name": name} if table is ApiKeyRow else {})
        return self.changed(update(table).where(key.in_(rows), column == owner).values(values)) > 0


BEGINS: Final = {
    OwnerDeed.SIGN_OUT: Owners.sign_out,
    OwnerDeed.PUT_OUT: Owners.put_out,
    OwnerDeed.LET_IN: Owners.let_in,
    OwnerDeed.ERASE: Owners.put_out,
}


def treat(database: Database, deed: OwnerDeed, owner: str) -> OwnerStatus:
    """Sign out, ban, readmit or erase an owner, in several transactions; return the owner's new status."""
    with database.transaction() as session:
        BEGINS[deed](Owners(session), owner)
        ban_time = session.scalar(select(PutOut.at).where(PutOut.owner_digest == digest_of(owner)))
    if ban_time is not None:
        _repeat(database, lambda owners: owners.cancel(owner))
    name = f"erased-{new_id()}" if deed is OwnerDeed.ERASE else owner
    for column in NAMED if deed is OwnerDeed.ERASE else ():
        _repeat(database, partial(Owners.rename, column=column, owner=owner, name=name))
    return OwnerStatus(owner=name, put_out_at=ban_time)


def _repeat(database: Database, step: Callable[[Owners], bool]) -> None:
    has_more = True
    while has_more:
        with database.transaction() as session:
            has_more = step(Owners(session))


class Usage(Repository):
    def hold(self, owner: str) -> None:
        """Lock an owner's usage until the transaction ends, so that no other request counts it."""
        super().hold(f"usage of {owner}")

    def jobs(self, owner: str) -> int:
        """Return the number of an owner's jobs that have neither ended nor been paused."""
        return self.session.scalar(select(func.count()).where(*_active(owner))) or 0

    def trials(self, owner: str) -> int:
        """Return how many trials active jobs may still make, without jobs that have no trial limit."""
        budgets = self.session.scalar(select(func.sum(Job.trials)).where(*_active(owner))) or 0
        limited_jobs = select(Job.id).where(*_active(owner), Job.trials.is_not(None))
        trial = Measurement.kind == MeasurementKind.TRIAL, Measurement.job_id.in_(limited_jobs)
        return max(0, budgets - (self.session.scalar(select(func.count()).where(*trial)) or 0))

    def model_bytes(self, owner: str) -> int:
        """Return the total size of an owner's uploaded models in bytes."""
        return self.session.scalar(select(func.sum(Model.size_bytes)).where(Model.owner == owner)) or 0


def _active(owner: str) -> tuple[ColumnElement[bool], ...]:
    return Job.owner == owner, Job.state.in_(ACTIVE)
