"""Who may come in: by a key of the environment, by one in SQL, or by a browser's sign-in."""

import hmac
import math
import os
import time
from contextlib import suppress
from functools import cached_property
from socket import socket
from typing import Final

from sqlalchemy.orm import Session

from db.repositories.api_keys import USED_SEC, ApiKeys
from db.repositories.owner_access import Owners
from db.repositories.sign_ins import SignIns
from db.session import Database, read_clock
from mallorn.core.api_keys import digest_of
from mallorn.core.errors import Unauthorized, Unavailable
from mallorn.core.settings import Settings
from mallorn.core.socket_users import peer_uid, user_name
from services.coordinator.web.caller_scopes import LOCAL, Caller

AGAIN_SEC: Final = 5.0
MOST_KNOWN: Final = 10_000
LET_IN: Final = "ask an admin: mallorn owners let-in OWNER"
ANOTHER: Final = "ask an admin for another: mallorn keys create NAME"
ROOT: Final = 0


class LocalPeer:
    """The program at the other end of a connection to this service."""

    def __init__(self, our_end: socket) -> None:
        self._our_end = our_end

    @cached_property
    def uid(self) -> int | None:
        """The user who runs it, as the kernel says; None if the kernel does not, or it is gone."""
        with suppress(OSError):
            uid = peer_uid(self._our_end.getsockname()[:2], self._our_end.getpeername()[:2])
            # Raises once the connection has ended: then another one may have its addresses by now.
            self._our_end.getpeername()
            return uid
        return None


class Authenticator:
    """Knows all keys. Once there was one, or an identity provider is set up, nobody comes in unknown.

    Until then the user who runs this service, and root, are the owner `local`; other users of the machine
    are nobody (ADR 0058). A caller without a peer is in this process.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._keys = settings.api_keys
        self._database = database
        self._asks = bool(settings.api_keys or settings.oidc_issuer)
        self._noted: dict[str, float] = {}
        self._good: dict[tuple[str | None, str | None], float] = {}

    def asks(self) -> bool:
        """Whether a key is needed here, whichever user asks."""
        if not self._asks:
            with self._database.session() as session:
                self._asks = ApiKeys(session).exist()
        return self._asks

    def caller(self, key: str | None, cookie: str | None, peer: LocalPeer | None) -> Caller:
        """Who presents this key, or else this cookie, or runs the peer. Raises Unauthorized."""
        if not self.asks():
            if peer is None or peer.uid in (os.getuid(), ROOT):
                return LOCAL
            raise _not_yours(peer.uid)
        with self._database.session() as session:
            if key is None:
                found = self._with_cookie(session, cookie)
            else:
                found = self._by_digest(session, digest_of(key))
            if found is not None and Owners(session).is_put_out(found.owner):
                raise Unauthorized(f"{found.owner} was put out of this service", hint=LET_IN)
        if found is not None:
            self._note_use(found.key_id)
            return found
        if key is None:
            raise Unauthorized(hint="set MALLORN_API_KEY or --api-key")
        raise Unauthorized("this API key is not known here", hint="check MALLORN_API_KEY")

    def still_open(self, key: str | None, cookie: str | None, peer: LocalPeer | None) -> bool:
        """Whether who came in so still may; looked up once in AGAIN_SEC for all streams of the same key."""
        now_sec = time.monotonic()
        if now_sec - self._good.get((key, cookie), -math.inf) < AGAIN_SEC:
            return True
        try:
            self.caller(key, cookie, peer)
        except Unauthorized:
            return False
        except Unavailable:
            return True
        if len(self._good) >= MOST_KNOWN:
            self._good.clear()
        self._good[key, cookie] = now_sec
        return True

    def _with_cookie(self, session: Session, cookie: str | None) -> Caller | None:
        known = SignIns(session).of(cookie) if cookie else None
        if known is None:
            return None
        if known.key_digest is None:
            return Caller(known.owner, scopes=known.scopes)
        return self._by_digest(session, known.key_digest)

    def _by_digest(self, session: Session, digest: str) -> Caller | None:
        # Every entry is compared, and in constant time, so that the answer's delay tells nothing.
        owners = [
            name
            for name, expected in self._keys.items()
            if hmac.compare_digest(digest.encode(), expected.encode())
        ]
        if owners:
            return Caller(owners[0])
        key = ApiKeys(session).presented(digest)
        if key is None:
            return None
        # Whoever presents the whole key may know why it opens nothing.
        if key.revoked_at is not None:
            raise Unauthorized(f"the API key {key.id} was revoked", hint=ANOTHER)
        if key.expires_at is not None and key.expires_at <= read_clock(session):
            raise Unauthorized(f"the API key {key.id} has expired", hint=ANOTHER)
        return Caller(key.owner, key.id, key.scopes)

    def _note_use(self, key_id: str) -> None:
        now_sec = time.monotonic()
        if not key_id or now_sec - self._noted.get(key_id, -math.inf) < USED_SEC:
            return
        self._noted[key_id] = now_sec
        # Nobody is kept out for want of it.
        with suppress(Unavailable), self._database.transaction() as session:
            ApiKeys(session).used(key_id)


def _not_yours(uid: int | None) -> Unauthorized:
    ours = user_name(os.getuid())
    if uid is None:
        return Unauthorized(
            f"this service is of {ours}, and the kernel does not say which user asks",
            hint=f"ask {ours} for a key: mallorn keys create NAME --here",
        )
    return Unauthorized(
        f"this service is of {ours}, and {user_name(uid)} asks",
        hint=f"mallorn up --port 0   (or ask {ours} for a key: mallorn keys create NAME --here)",
    )
