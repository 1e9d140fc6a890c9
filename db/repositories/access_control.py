"""API keys, browser sessions, login codes, owners' bans and quotas, and the audit log."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from sqlalchemy import ColumnElement, Update, and_, delete, exists, func, or_, select, true, union, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import class_mapper

from mallorn.core.api_keys import (
    OwnerAction,
    Purpose,
    Scope,
    hash_for,
    hash_secret,
    new_id,
    new_key,
    new_secret,
)
from mallorn.core.errors import Conflict, NotFound, Unavailable
from mallorn.core.settings import Settings
from mallorn.core.states import JobState, MeasurementKind
from mallorn.core.values.access_control import ApiKey, AuditEntry, NewApiKey, OwnerStatus
from mallorn.db.database_clock import now
from mallorn.db.migrate import OldTables, check_table_version
from mallorn.db.repositories.base import Page, Repository, seconds_from_now
from mallorn.db.repositories.job_transitions import cancel
from mallorn.db.repositories.jobs import ACTIVE
from mallorn.db.session import Database, read_clock
from mallorn.db.tables import ApiKeyRow, AuditRow, BannedOwner, Job, LoginCode, Measurement, Model, SessionRow

NAMED: Final[tuple[Any, ...]] = (
    *(table.owner for table in (ApiKeyRow, SessionRow, Job, Model, LoginCode, AuditRow)),
    AuditRow.subject,
)
BATCH: Final = 200  # rows per transaction, because an owner may have ten thousand
DAY_SEC: Final = 24 * 3600.0
USED_SEC: Final = 60.0  # least time between two writes of a key's last use
MOST_OF_OWNER: Final = 200


class Owners(Repository):
    """Bans owners, ends their keys, sign-ins and jobs, and replaces their names."""

    def is_banned(self, owner: str) -> bool:
        """Return whether this owner is banned, so that no key or sign-in is accepted."""
        query = select(exists().where(BannedOwner.owner_digest == hash_secret(owner)))
        return bool(self.session.scalar(query))

    def is_known(self, owner: str) -> bool:
        """Return whether any row names this owner; after an erasure none does."""
        is_named = (exists().where(column == owner) for column in NAMED)
        return bool(self.session.scalar(select(or_(*is_named))))

    def list(self) -> list[OwnerStatus]:
        """Return all owners with a key, a sign-in or a job, past or present, by name."""
        ban_times = dict(self.session.execute(select(BannedOwner.owner_digest, BannedOwner.at)).all())
        names = {name for column in NAMED[:3] for name in self.session.scalars(select(column).distinct())}
        return [OwnerStatus(owner=name, banned_at=ban_times.get(hash_secret(name))) for name in sorted(names)]

    def sign_out(self, owner: str) -> None:
        """End all browser sessions and login codes of an owner."""
        for table in (SessionRow, LoginCode):
            self.execute_and_count(delete(table).where(table.owner == owner))

    def ban(self, owner: str) -> None:
        """Ban an owner: revoke all keys permanently and end all sign-ins."""
        row = self.insert(BannedOwner).values(owner_digest=hash_secret(owner))
        self.execute_and_count(row.on_conflict_do_nothing())
        active_keys = ApiKeyRow.owner == owner, ApiKeyRow.revoked_at.is_(None)
        self.execute_and_count(update(ApiKeyRow).where(*active_keys).values(revoked_at=now()))
        self.sign_out(owner)

    def readmit(self, owner: str) -> None:
        """Lift an owner's ban: sign-ins and new keys are allowed, old keys stay revoked."""
        self.execute_and_count(delete(BannedOwner).where(BannedOwner.owner_digest == hash_secret(owner)))

    def cancel(self, owner: str) -> bool:
        """Cancel up to BATCH unfinished jobs of an owner; return whether there were any."""
        unfinished = Job.owner == owner, Job.state.in_((*ACTIVE, JobState.PAUSED)), Job.deleted_at.is_(None)
        jobs = self.session.scalars(select(Job.id).where(*unfinished).order_by(Job.id).limit(BATCH)).all()
        for job_id in jobs:
            with suppress(Conflict):  # the job has ended meanwhile
                cancel(self.session, job_id, None, "as its owner was banned")
        return bool(jobs)

    def rename(self, column: Any, owner: str, name: str) -> bool:
        """Replace an owner's name in up to BATCH rows; return whether there were any."""
        table = column.class_
        key = class_mapper(table).primary_key[0]
        rows = self.session.scalars(select(key).where(column == owner).limit(BATCH)).all()
        values = {column.key: name} | ({"name": name} if table is ApiKeyRow else {})
        return self.execute_and_count(update(table).where(key.in_(rows), column == owner).values(values)) > 0


BEGINS: Final = {
    OwnerAction.SIGN_OUT: Owners.sign_out,
    OwnerAction.BAN: Owners.ban,
    OwnerAction.READMIT: Owners.readmit,
    OwnerAction.ERASE: Owners.ban,
}


def apply_owner_action(database: Database, action: OwnerAction, owner: str) -> OwnerStatus:
    """Sign out, ban, readmit or erase an owner, in several transactions; return its status."""
    with database.transaction() as session:
        BEGINS[action](Owners(session), owner)
        query = select(BannedOwner.at).where(BannedOwner.owner_digest == hash_secret(owner))
        ban_time = session.scalar(query)
    if ban_time is not None:
        _repeat_until_done(database, lambda owners: owners.cancel(owner))
    name = f"erased-{new_id()}" if action is OwnerAction.ERASE else owner
    for column in NAMED if action is OwnerAction.ERASE else ():
        _repeat_until_done(database, partial(Owners.rename, column=column, owner=owner, name=name))
    return OwnerStatus(owner=name, banned_at=ban_time)


def _repeat_until_done(database: Database, step: Callable[[Owners], bool]) -> None:
    has_more = True
    while has_more:
        with database.transaction() as session:
            has_more = step(Owners(session))


class Usage(Repository):
    def lock_owner_usage(self, owner: str) -> None:
        """Lock an owner's usage until the transaction ends; no other request counts it."""
        super().lock_name(f"usage of {owner}")

    def count_active_jobs(self, owner: str) -> int:
        """Return the number of an owner's jobs that have neither ended nor been paused."""
        return self.session.scalar(select(func.count()).where(*_active(owner))) or 0

    def count_remaining_trials(self, owner: str) -> int:
        """Return the trials left to an owner's active jobs, except jobs without a limit."""
        budgets = self.session.scalar(select(func.sum(Job.trials)).where(*_active(owner))) or 0
        limited_jobs = select(Job.id).where(*_active(owner), Job.trials.is_not(None))
        trial = Measurement.kind == MeasurementKind.TRIAL, Measurement.job_id.in_(limited_jobs)
        return max(0, budgets - (self.session.scalar(select(func.count()).where(*trial)) or 0))

    def count_targets(self, owner: str) -> int:
        """Return the number of different targets of an owner's jobs, also deleted ones."""
        targets = select(func.count(Job.target_id.distinct())).where(Job.owner == owner)
        return self.session.scalar(targets) or 0

    def model_bytes(self, owner: str) -> int:
        """Return the total size of an owner's uploaded models in bytes."""
        return self.session.scalar(select(func.sum(Model.size_bytes)).where(Model.owner == owner)) or 0


def _active(owner: str) -> tuple[ColumnElement[bool], ...]:
    return Job.owner == owner, Job.state.in_(ACTIVE)


class ApiKeys(Repository):
    """API keys; a key's id is its first part. An `owner` of None means all owners."""

    def has_ever_existed(self) -> bool:
        """Return whether there ever was a key: requests need one though all are revoked."""
        return bool(self.session.scalar(select(exists().select_from(ApiKeyRow))))

    def create(self, owner: str, name: str, scopes: Sequence[Scope], days: float | None = None) -> NewApiKey:
        """Create a key, returned only once. Raises Conflict if the owner is banned."""
        if Owners(self.session).is_banned(owner):
            raise Conflict(f"{owner} is banned from this service", hint=f"mallorn owners readmit {owner}")
        key_id = new_id()
        key = new_key(key_id)
        created_at = read_clock(self.session)
        row = ApiKeyRow(
            id=key_id,
            owner=owner,
            name=name,
            digest=hash_secret(key),
            scopes=[str(scope) for scope in scopes],
            created_at=created_at,
            expires_at=None if days is None else created_at + days * DAY_SEC,
        )
        self.session.add(row)
        self.session.flush()
        return NewApiKey.from_row(row, key=key)

    def find_by_digest(self, digest: str) -> ApiKey | None:
        """Return the key, valid or not, whose secret has this digest, or None.

        After a rotation, the old secret still counts until its grace period ends.
        """
        is_previous = and_(ApiKeyRow.previous_digest == digest, ApiKeyRow.previous_until > now())
        query = select(ApiKeyRow).where(or_(ApiKeyRow.digest == digest, is_previous))
        row = self.session.scalars(query).one_or_none()
        return None if row is None else ApiKey.from_row(row)

    def is_current(self, key_id: str, digest: str) -> bool:
        """Return whether this digest is of the key's current secret, not the previous."""
        is_current = ApiKeyRow.id == key_id, ApiKeyRow.digest == digest
        return bool(self.session.scalar(select(exists().where(*is_current))))

    def record_use(self, key_id: str) -> None:
        """Record a key's use, once in USED_SEC seconds; audit its secret's first use."""
        used_now = _update(key_id).values(last_used_at=now())
        first_use = used_now.where(ApiKeyRow.last_used_at.is_(None)).returning(ApiKeyRow.owner)
        if owner := self.session.scalar(first_use):
            request = {"method": "USE", "path": "", "status": HTTPStatus.OK}
            words = f"first use of key {key_id}"
            entry = AuditRow(owner=owner, key_id=key_id, **request, subject=owner, detail=words)
            Audit(self.session).add(entry)
        is_older = ApiKeyRow.last_used_at < seconds_from_now(-USED_SEC)
        self.execute_and_count(used_now.where(is_older))

    def list(self, owner: str | None = None) -> list[ApiKey]:
        """Return an owner's keys, newest first, including revoked ones."""
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_at.desc(), ApiKeyRow.id)
        if owner is not None:
            query = query.where(ApiKeyRow.owner == owner)
        return [ApiKey.from_row(row) for row in self.session.scalars(query)]

    def get(self, key_id: str, owner: str | None = None) -> ApiKey:
        """Return a key. Raises NotFound if there is none or it is another owner's."""
        row = self.session.get(ApiKeyRow, key_id)
        if row is None or owner not in (None, row.owner):
            raise NotFound(f"there is no API key {key_id}", hint="mallorn keys")
        return ApiKey.from_row(row)

    def rotate(self, key: ApiKey, grace_sec: float = 0.0, current_digest: str | None = None) -> NewApiKey:
        """Give a key a new secret, and accept the old one for another `grace_sec`.

        The key's period of validity starts anew with the same length.
        Raises Conflict if the key is revoked or expired, or if its digest is no longer
        `current_digest` (None: not checked).
        """
        secret, start = new_key(key.id), read_clock(self.session)
        end = None if key.expires_at is None else start + key.expires_at - key.created_at
        new = {"digest": hash_secret(secret), "created_at": start, "expires_at": end, "last_used_at": None}
        # The old secret expires no later than it would have without the rotation.
        old_end = start + grace_sec if key.expires_at is None else min(start + grace_sec, key.expires_at)
        old = {"previous_digest": ApiKeyRow.digest, "previous_until": old_end}
        is_unexpired = or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > now())
        is_current = true() if current_digest is None else ApiKeyRow.digest == current_digest
        valid_key = _update(key.id).where(ApiKeyRow.revoked_at.is_(None), is_unexpired, is_current)
        if not self.execute_and_count(valid_key.values(**new, **old)):
            cause = "has expired, or was rotated before," if key.revoked_at is None else "was revoked,"
            message = f"the API key {key.id} {cause} and cannot be used again"
            raise Conflict(message, hint="mallorn keys create NAME")
        return NewApiKey(**self.get(key.id).model_dump(), key=secret)

    def revoke(self, key_id: str) -> None:
        """Revoke a key permanently; does nothing if it is revoked already."""
        self.execute_and_count(_update(key_id).where(ApiKeyRow.revoked_at.is_(None)).values(revoked_at=now()))


def _update(key_id: str) -> Update:
    return update(ApiKeyRow).where(ApiKeyRow.id == key_id)


def needs_api_keys(settings: Settings) -> bool:
    """Return whether callers need a key; True if Postgres (which may hold some) is down."""
    if settings.api_keys or settings.oidc_issuer:
        return True
    try:
        with Database(settings.database_url) as database, database.session() as session:
            return ApiKeys(session).has_ever_existed()
    except DBAPIError:  # the table does not exist yet
        return False
    except Unavailable:
        return not settings.database_url.startswith("sqlite")


def has_api_keys(url: str) -> bool:
    """Return whether this database ever held a key; False if away or not migrated."""
    try:
        with Database(url) as database:
            check_table_version(database)
            with database.session() as session:
                return ApiKeys(session).has_ever_existed()
    except (OldTables, Unavailable):
        return False


class SignIns(Repository):
    """Browser sessions and codes of `mallorn login`, stored by digests."""

    def delete_expired(self) -> None:
        for table in (SessionRow, LoginCode):
            self.execute_and_count(delete(table).where(table.expires_at < now()))

    def create_session(self, row: SessionRow, seconds: float) -> str:
        """Return a new session's cookie; delete the owner's oldest sessions over the limit."""
        of_owner = select(SessionRow.digest).where(SessionRow.owner == row.owner)
        newest_first = of_owner.order_by(SessionRow.created_at.desc())
        older = select(newest_first.offset(MOST_OF_OWNER - 1).subquery().c.digest)
        self.execute_and_count(delete(SessionRow).where(SessionRow.digest.in_(older)))
        return self._add(row, seconds, Purpose.SESSION)

    def find_session(self, cookie: str) -> SessionRow | None:
        """Return the session of a cookie; None if it has expired or is unknown."""
        is_it = SessionRow.digest == hash_for(Purpose.SESSION, cookie)
        query = select(SessionRow).where(is_it, SessionRow.expires_at >= now())
        return self.session.scalar(query)

    def end_session(self, cookie: str) -> str | None:
        """End a session and return its owner; None if it is unknown."""
        is_it = SessionRow.digest == hash_for(Purpose.SESSION, cookie)
        deletion = delete(SessionRow).where(is_it)
        return self.session.scalar(deletion.returning(SessionRow.owner))

    def create_code(self, row: LoginCode, seconds: float, challenge: str) -> str:
        """Return a new code for the holder of the text whose SHA-256 is `challenge`."""
        return self._add(row, seconds, Purpose.LOGIN_CODE, challenge)

    def end_code(self, code: str, challenge: str) -> LoginCode | None:
        """End a code and return its row, to one request only; None if there is none."""
        is_it = LoginCode.digest == hash_for(Purpose.LOGIN_CODE, code, challenge)
        code_deletion = delete(LoginCode).where(is_it, LoginCode.expires_at >= now())
        return self.session.scalar(code_deletion.returning(LoginCode))

    def _add(self, row: SessionRow | LoginCode, seconds: float, purpose: Purpose, *challenge: str) -> str:
        self.delete_expired()
        secret, row.expires_at = new_secret(), read_clock(self.session) + seconds
        row.digest = hash_for(purpose, secret, *challenge)
        self.session.add(row)
        return secret


class Audit(Repository):
    def add(self, entry: AuditRow) -> None:
        self.session.add(entry)

    def add_local_change(self, subject: str, detail: str) -> None:
        """Record a change that a command made in this database, without a request."""
        request = {"method": "RUN", "path": "--here", "status": HTTPStatus.OK}
        self.add(AuditRow(owner=subject, key_id="", **request, subject=subject, detail=detail))

    def page(self, owner: str | None, cursor: str | None = None, limit: int = 50) -> Page[AuditEntry]:
        """Return requests by an owner or on their keys, newest first; None means all."""
        is_older = true() if cursor is None else AuditRow.id < Page.decode_cursor(cursor, int)[0]
        query = select(AuditRow).where(is_older).order_by(AuditRow.id.desc()).limit(limit + 1)
        if owner is not None:  # each of the two columns has its own index
            newest = select(AuditRow.id).where(is_older).order_by(AuditRow.id.desc()).limit(limit + 1)
            ids = (newest.where(column == owner).subquery() for column in (AuditRow.owner, AuditRow.subject))
            query = query.where(AuditRow.id.in_(union(*(select(half.c.id) for half in ids))))
        entries = [AuditEntry.from_row(row) for row in self.session.scalars(query)]
        return Page.of(entries, limit, lambda entry: (entry.id,))

    def delete_old_entries(self, days: float, limit: int) -> int:
        """Delete up to `limit` entries older than `days` days, oldest first; return the count."""
        return self._delete_below(AuditRow.at, seconds_from_now(-days * 86400), limit)

    def delete_surplus_entries(self, kept_entries: int, limit: int) -> int:
        """Delete at most `limit` of the oldest entries over `kept_entries`; count them."""
        newest = select(func.max(AuditRow.id)).scalar_subquery()
        return self._delete_below(AuditRow.id, newest - kept_entries + 1, limit)

    def _delete_below(self, column: Any, bound: ColumnElement[Any], limit: int) -> int:
        smallest = select(AuditRow.id).where(column < bound).order_by(column).limit(limit)
        return self.execute_and_count(delete(AuditRow).where(AuditRow.id.in_(smallest)))
