"""Sign-ins of browsers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select

from db.database_clock import now
from db.repositories.base import Repository
from db.session import read_clock
from db.tables import SignIn
from mallorn.core.api_keys import Scope, digest_of, new_secret

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
