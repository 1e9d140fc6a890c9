"""API keys: made, found by what was presented, replaced, revoked."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Update, and_, exists, or_, select, true, update
from sqlalchemy.exc import DBAPIError

from db.database_clock import now
from db.migrate import OldTables, check
from db.repositories.base import Repository, until
from db.repositories.owner_access import Owners
from db.session import Database, read_clock
from db.tables import ApiKeyRow
from mallorn.core.api_keys import Scope, digest_of, new_id, new_key
from mallorn.core.errors import Conflict, NotFound, Unavailable
from mallorn.core.settings import Settings
from mallorn.core.values.access_control import ApiKey, NewApiKey

DAY_SEC: Final = 24 * 3600.0
USED_SEC: Final = 60.0  # a key in use writes no oftener than this


class ApiKeys(Repository):
    """Keys by their first part; `owner` None stands for all owners."""

    def exist(self) -> bool:
        """Whether there ever was one: revoking the last opens no door."""
        return bool(self.session.scalar(select(exists().select_from(ApiKeyRow))))

    def create(self, owner: str, name: str, scopes: Sequence[Scope], days: float | None = None) -> NewApiKey:
        """Make a key, which is never told again. Raises Conflict for an owner who was put out."""
        if Owners(self.session).is_put_out(owner):
            raise Conflict(f"{owner} was put out of this service", hint=f"mallorn owners let-in {owner}")
        key_id = new_id()
        key = new_key(key_id)
        made = read_clock(self.session)
        row = ApiKeyRow(
            id=key_id,
            owner=owner,
            name=name,
            digest=digest_of(key),
            scopes=[str(scope) for scope in scopes],
            created_at=made,
            expires_at=None if days is None else made + days * DAY_SEC,
        )
        self.session.add(row)
        self.session.flush()
        return NewApiKey.from_row(row, key=key)

    def presented(self, digest: str) -> ApiKey | None:
        """The key of this digest, whether it is still good or not; the one before while it is let in."""
        before = and_(ApiKeyRow.previous_digest == digest, ApiKeyRow.previous_until > now())
        query = select(ApiKeyRow).where(or_(ApiKeyRow.digest == digest, before))
        row = self.session.scalars(query).one_or_none()
        return None if row is None else ApiKey.from_row(row)

    def opens(self, key_id: str, digest: str) -> bool:
        """Whether this is the key as its last rotation made it."""
        newest = ApiKeyRow.id == key_id, ApiKeyRow.digest == digest
        return bool(self.session.scalar(select(exists().where(*newest))))

    def used(self, key_id: str) -> None:
        """It was presented just now."""
        long_ago = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at < until(-USED_SEC))
        self.changed(_one(key_id).where(long_ago).values(last_used_at=now()))

    def list(self, owner: str | None = None) -> list[ApiKey]:
        """Newest first, revoked ones too."""
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_at.desc(), ApiKeyRow.id)
        if owner is not None:
            query = query.where(ApiKeyRow.owner == owner)
        return [ApiKey.from_row(row) for row in self.session.scalars(query)]

    def get(self, key_id: str, owner: str | None = None) -> ApiKey:
        """Raises NotFound for a key that is not there, or another owner's."""
        row = self.session.get(ApiKeyRow, key_id)
        if row is None or owner not in (None, row.owner):
            raise NotFound(f"there is no API key {key_id}", hint="mallorn keys")
        return ApiKey.from_row(row)

    def rotate(self, key: ApiKey, grace_sec: float = 0.0, by: str | None = None) -> NewApiKey:
        """Another secret for the same key, for as long as it was made for; so long the old one is let in.

        `by`: the digest of what has to be the key still. Raises Conflict for a key that is over: it stays so.
        """
        secret, made = new_key(key.id), read_clock(self.session)
        ends = None if key.expires_at is None else made + key.expires_at - key.created_at
        fresh = {"digest": digest_of(secret), "created_at": made, "expires_at": ends, "last_used_at": None}
        # The old secret's end is not moved with the new one's.
        old_end = made + grace_sec if key.expires_at is None else min(made + grace_sec, key.expires_at)
        old = {"previous_digest": ApiKeyRow.digest, "previous_until": old_end}
        lasts = or_(ApiKeyRow.expires_at.is_(None), ApiKeyRow.expires_at > now())
        still = true() if by is None else ApiKeyRow.digest == by
        good = _one(key.id).where(ApiKeyRow.revoked_at.is_(None), lasts, still)
        if not self.changed(good.values(**fresh, **old)):
            over = "has expired, or was rotated before," if key.revoked_at is None else "was revoked,"
            raise Conflict(f"the API key {key.id} {over} and stays so", hint="mallorn keys create NAME")
        return NewApiKey(**self.get(key.id).model_dump(), key=secret)

    def revoke(self, key_id: str) -> None:
        """It opens nothing from now on. A second time changes nothing."""
        self.changed(_one(key_id).where(ApiKeyRow.revoked_at.is_(None)).values(revoked_at=now()))


def _one(key_id: str) -> Update:
    return update(ApiKeyRow).where(ApiKeyRow.id == key_id)


def asks_for_keys(known: Settings) -> bool:
    """Return whether callers need a key; True for a server that does not answer: it may hold some."""
    if known.api_keys or known.oidc_issuer:
        return True
    try:
        with Database(known.database_url) as database, database.session() as session:
            return ApiKeys(session).exist()
    except DBAPIError:  # it has no such table yet
        return False
    except Unavailable:
        return not known.database_url.startswith("sqlite")


def holds_keys(url: str) -> bool:
    """Whether there ever was an API key in this database; one that is not there yet holds none."""
    try:
        with Database(url) as database:
            check(database)
            with database.session() as session:
                return ApiKeys(session).exist()
    except (OldTables, Unavailable):
        return False
