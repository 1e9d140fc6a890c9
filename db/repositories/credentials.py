"""API keys and sign-ins of browsers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Update, and_, delete, exists, or_, select, true, update
from sqlalchemy.exc import DBAPIError

from db.database_clock import now
from db.migrate import OldTables, check
from db.repositories.base import Repository, until
from db.repositories.owners import Owners
from db.session import Database, read_clock
from db.tables import ApiKeyRow, SignIn
from mallorn.core.api_keys import Scope, digest_of, new_id, new_key, new_secret
from mallorn.core.errors import Conflict, NotFound, Unavailable
from mallorn.core.settings import Settings
from mallorn.core.values.access_control import ApiKey, NewApiKey

DAY_SEC: Final = 24 * 3600.0
USED_SEC: Final = 60.0  # least time between two writes of a key's last use


class ApiKeys(Repository):
    """API keys by id, the key's first part; `owner` None stands for all owners."""

    def exist(self) -> bool:
        """Return whether there ever was a key: after the last is revoked, requests still need one."""
        return bool(self.session.scalar(select(exists().select_from(ApiKeyRow))))

    def create(self, owner: str, name: str, scopes: Sequence[Scope], days: float | None = None) -> NewApiKey:
        """Create a key; only this call ever returns it. Raises Conflict if the owner is banned."""
        if Owners(self.session).is_put_out(owner):
            raise Conflict(f"{owner} was put out of this service", hint=f"mallorn owners let-in {owner}")
        key_id = new_id()
        key = new_key(key_id)
        created_at = read_clock(self.session)
        row = ApiKeyRow(
            id=key_id,
            owner=owner,
            name=name,
            digest=digest_of(key),
            scopes=[str(scope) for scope in scopes],
            created_at=created_at,
            expires_at=None if days is None else created_at + days * DAY_SEC,
        )
        self.session.add(row)
        self.session.flush()
        return NewApiKey.from_row(row, key=key)

    def presented(self, digest: str) -> ApiKey | None:
        """Return the key with this digest, valid or not, or whose previous secret is still accepted."""
        is_previous = and_(ApiKeyRow.previous_digest == digest, ApiKeyRow.previous_until > now())
        query = select(ApiKeyRow).where(or_(ApiKeyRow.digest == digest, is_previous))
        row = self.session.scalars(query).one_or_none()
        return None if row is None else ApiKey.from_row(row)

    def opens(self, key_id: str, digest: str) -> bool:
        """Return whether this digest is of the key's current secret, and not of its previous one."""
        is_current = ApiKeyRow.id == key_id, ApiKeyRow.digest == digest
        return bool(self.session.scalar(select(exists().where(*is_current))))

    def used(self, key_id: str) -> None:
        """Record that a request used this key now."""
        is_old = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at < until(-USED_SEC))
        self.changed(_update(key_id).where(is_old).values(last_used_at=now()))

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
        """Give a key a new secret with the same lifetime; accept the old one for `grace_sec` more.

        Raises Conflict for a revoked or expired key, or if the key's digest is no longer
        `current_digest` (None: any).
        """
        secret, start = new_key(key.id), read_clock(self.session)
        end = None if key.expires_at is None else start + key.expires_at - key.created_at
        new = {"digest": digest_of(secret), "created_at": start, "expires_at": end, "last_used_at": None}
        # The old secret expires no later than it would have without the rotation.
        old_end = start + grace_sec if key.expires_at is None else min(start + grace_sec, key.expires_at)
        old = {"previous_digest": ApiKeyRow.digest, "previous_until": old_end}
        is_unexpired = or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > now())
        is_current = true() if current_digest is None else ApiKeyRow.digest == current_digest
        valid_key = _update(key.id).where(ApiKeyRow.revoked_at.is_(None), is_unexpired, is_current)
        if not self.changed(valid_key.values(**new, **old)):
            cause = "has expired, or was rotated before," if key.revoked_at is None else "was revoked,"
            raise Conflict(f"the API key {key.id} {cause} and stays so", hint="mallorn keys create NAME")
        return NewApiKey(**self.get(key.id).model_dump(), key=secret)

    def revoke(self, key_id: str) -> None:
        """Revoke a key permanently; does nothing if it is revoked already."""
        self.changed(_update(key_id).where(ApiKeyRow.revoked_at.is_(None)).values(revoked_at=now()))


def _update(key_id: str) -> Update:
    return update(ApiKeyRow).where(ApiKeyRow.id == key_id)


def asks_for_keys(settings: Settings) -> bool:
    """Return whether callers need a key; True if Postgres does not answer, as it may hold some."""
    if settings.api_keys or settings.oidc_issuer:
        return True
    try:
        with Database(settings.database_url) as database, database.session() as session:
            return ApiKeys(session).exist()
    except DBAPIError:  # the table does not exist yet
        return False
    except Unavailable:
        return not settings.database_url.startswith("sqlite")


def holds_keys(url: str) -> bool:
    """Return whether this database ever held a key; False if missing, unreachable or not migrated."""
    try:
        with Database(url) as database:
            check(database)
            with database.session() as session:
                return ApiKeys(session).exist()
    except (OldTables, Unavailable):
        return False


MOST_OF_OWNER: Final = 200


@dataclass(frozen=True, slots=True)
class LetIn:
    """The owner of a sign-in, and the scopes that it grants."""

    owner: str
    scopes: tuple[Scope, ...]
    key_digest: str | None  # of the API key with which the owner signed in


class SignIns(Repository):
    """Sign-ins by the digest of their cookie."""

    def create(
        self, owner: str, scopes: Sequence[Scope], seconds: float, key_digest: str | None = None
    ) -> str:
        """Sign in and return a new cookie; delete expired sign-ins, and the owner's oldest over the limit."""
        self.changed(delete(SignIn).where(SignIn.expires_at < now()))
        newest = select(SignIn.digest).where(SignIn.owner == owner).order_by(SignIn.created_at.desc())
        older = newest.offset(MOST_OF_OWNER - 1).subquery()
        self.changed(delete(SignIn).where(SignIn.digest.in_(select(older.c.digest))))
        cookie, expires_at = new_secret(), read_clock(self.session) + seconds
        columns = {"owner": owner, "scopes": [str(scope) for scope in scopes], "key_digest": key_digest}
        self.session.add(SignIn(digest=digest_of(cookie), expires_at=expires_at, **columns))
        return cookie

    def of(self, cookie: str) -> LetIn | None:
        """Return the owner and scopes of a cookie; None if it has expired or is unknown."""
        query = select(SignIn).where(SignIn.digest == digest_of(cookie), SignIn.expires_at >= now())
        row = self.session.scalars(query).one_or_none()
        if row is None:
            return None
        return LetIn(row.owner, tuple(map(Scope, row.scopes)), row.key_digest)

    def end(self, cookie: str) -> None:
        """End the sign-in of this cookie."""
        self.changed(delete(SignIn).where(SignIn.digest == digest_of(cookie)))
