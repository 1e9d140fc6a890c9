"""Authenticates callers by a key or a browser session, and checks the scopes that routes need.

Keys are set in the environment or stored in SQL. A route with a safe method needs the scope
`read`, any other `submit`. Routes that change shared things declare `openapi_extra` by
`required_scopes_extra(Scope.ADMIN)`, which adds the scope to the OpenAPI document.
"""

import hmac
import math
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from socket import socket
from typing import Any, Final

from fastapi import APIRouter
from fastapi.routing import APIRoute
from sqlalchemy.orm import Session

from mallorn.core.address_checks import ROOT_UID, connected_uid, user_name
from mallorn.core.api_keys import ALL_SCOPES, Scope, allows, hash_page_secret, hash_secret
from mallorn.core.errors import Forbidden, Unauthorized, Unavailable
from mallorn.core.settings import Settings
from mallorn.db.repositories.access_control import USED_SEC, ApiKeys, Owners, SignIns
from mallorn.db.session import Database, read_clock

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SCOPES: Final = "x-scopes"  # key in the OpenAPI document
AGAIN_SEC: Final = 5.0
MOST_KNOWN: Final = 10_000
READMIT_HINT: Final = "ask an admin: mallorn owners readmit OWNER"
ANOTHER: Final = "ask an admin for a new key: mallorn keys create NAME"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated owner, with the key and its scopes."""

    owner: str
    key_id: str = ""  # as `mallorn keys` lists it; empty without a stored key
    scopes: tuple[Scope, ...] = ALL_SCOPES

    @property
    def visible_owner(self) -> str | None:
        """Owner whose keys and audit entries the caller may list; None: all owners'."""
        return None if allows(self.scopes, Scope.ADMIN) else self.owner

    def require_any_scope(self, scopes: tuple[Scope, ...]) -> None:
        """Raise Forbidden unless one of these scopes is among the caller's."""
        if not any(allows(self.scopes, scope) for scope in scopes):
            raise self._refusal(" or ".join(scopes), scopes[0])

    def require_all_scopes(self, scopes: tuple[Scope, ...]) -> None:
        """Raise Forbidden unless all of these scopes are among the caller's."""
        if lacking := [scope for scope in scopes if not allows(self.scopes, scope)]:
            raise self._refusal(" and ".join(lacking), lacking[0])

    def _refusal(self, required: str, first: Scope) -> Forbidden:
        return Forbidden(
            f"this key has the scopes {', '.join(self.scopes)}, but this needs {required}",
            hint=f"ask an admin for a new key: mallorn keys create NAME --scope {first}",
        )


LOCAL: Final = Caller("local")


def required_scopes_extra(*scopes: Scope) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that needs one of these scopes."""
    return {SCOPES: [str(scope) for scope in scopes]}


def set_default_scopes(router: APIRouter) -> None:
    """Give every route that declares no scope `read` for safe methods, else `submit`."""
    for route in router.routes:
        assert isinstance(route, APIRoute)  # noqa: S101 - these routers hold nothing else
        default = Scope.READ if SAFE_METHODS.issuperset(route.methods or ()) else Scope.SUBMIT
        route.openapi_extra = required_scopes_extra(default) | (route.openapi_extra or {})


class LocalPeer:
    """The program at the other end of a connection to this service."""

    def __init__(self, our_end: socket) -> None:
        self._our_end = our_end

    @cached_property
    def uid(self) -> int | None:
        """The uid of the peer process, from the kernel; None if unknown or disconnected."""
        return connected_uid(self._our_end)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Unchecked credentials of a request; a cookie counts only with its page's secret."""

    key: str | None = None
    cookie: str | None = None
    page_secret: str | None = None
    peer: LocalPeer | None = None  # None: this process


class CredentialRefused(Unauthorized):
    """A known owner's credential is no longer valid, or is presented as another kind."""

    def __init__(self, message: str, hint: str, owner: str, key_id: str | None) -> None:
        super().__init__(message, hint=hint)
        self.owner = owner
        self.key_id = key_id or ""


class Authenticator:
    """Authenticates callers; keys are required once one exists or a provider is configured.

    Until then the user who runs this service and root act as the owner `local`, and other
    users of the machine are refused (ADR 0058). A caller without a peer is in this process.
    """

    def __init__(self, settings: Settings, database: Database) -> None:
        self._keys = settings.api_keys
        self._database = database
        self._asks = bool(settings.api_keys or settings.oidc_issuer)
        self._use_noted_sec: dict[str, float] = {}
        self._admitted_sec: dict[tuple[str | None, ...], float] = {}

    def needs_credentials(self) -> bool:
        """Return whether this service requires an API key or a sign-in."""
        if not self._asks:
            with self._database.session() as session:
                self._asks = ApiKeys(session).has_ever_existed()
        return self._asks

    def authenticate(self, credentials: Credentials) -> Caller:
        """Authenticate by key or cookie or, if no keys are required, by the peer process.

        Raises Unauthorized if that fails; CredentialRefused if the owner is known.
        """
        key, peer = credentials.key, credentials.peer
        if not self.needs_credentials():
            if peer is None or peer.uid in (os.getuid(), ROOT_UID):
                return LOCAL
            user, command = user_name(os.getuid()), "mallorn keys create NAME --here"
            if peer.uid is None:
                message = f"this service is of {user}, and the kernel does not report the caller's user"
                raise Unauthorized(message, hint=f"ask {user} for a key: {command}")
            message = f"this service is of {user}, and {user_name(peer.uid)} asks"
            raise Unauthorized(message, hint=f"mallorn up --port 0   (or ask {user} for a key: {command})")
        with self._database.session() as session:
            caller: Caller | None = None
            if key is not None:
                caller = self._by_digest(session, hash_secret(key))
                if caller is None and (signed_in := SignIns(session).find_session(key)):
                    message = "this is the cookie of a browser session, not an API key"
                    raise CredentialRefused(message, ANOTHER, signed_in.owner, signed_in.key_id)
            elif credentials.cookie:
                page_secret = credentials.page_secret or ""
                caller = self._by_cookie(session, credentials.cookie, page_secret)
            if caller is not None and Owners(session).is_banned(caller.owner):
                message = f"{caller.owner} is banned from this service"
                if Owners(session).is_known(caller.owner):  # else erased: store no name again
                    raise CredentialRefused(message, READMIT_HINT, caller.owner, caller.key_id)
                raise Unauthorized(message, hint=READMIT_HINT)
        if caller is None and key is None:
            raise Unauthorized(hint="mallorn login URL   (or set MALLORN_API_KEY)")
        if caller is None:
            raise Unauthorized("this service does not know the API key", hint="check MALLORN_API_KEY")

        key_id, now_sec = caller.key_id, time.monotonic()
        if key_id and now_sec - self._use_noted_sec.get(key_id, -math.inf) >= USED_SEC:
            self._use_noted_sec[key_id] = now_sec
            # A failure to record the use must not refuse the caller.
            with suppress(Unavailable), self._database.transaction() as session:
                ApiKeys(session).record_use(key_id)
        return caller

    def is_still_valid(self, credentials: Credentials) -> bool:
        """Return whether the credentials are valid, or were at most AGAIN_SEC ago."""
        now_sec = time.monotonic()
        presented = credentials.key, credentials.cookie, credentials.page_secret
        if now_sec - self._admitted_sec.get(presented, -math.inf) < AGAIN_SEC:
            return True
        try:
            self.authenticate(credentials)
        except Unauthorized:
            return False
        except Unavailable:
            return True
        if len(self._admitted_sec) >= MOST_KNOWN:
            self._admitted_sec.clear()
        self._admitted_sec[presented] = now_sec
        return True

    def _by_cookie(self, session: Session, cookie: str, page_secret: str) -> Caller | None:
        signed_in = SignIns(session).find_session(cookie)
        if signed_in is None:
            if (key := ApiKeys(session).find_by_digest(hash_secret(cookie))) is not None:
                message = "this is an API key, not the cookie of a browser session"
                raise CredentialRefused(message, "send it as Authorization: Bearer KEY", key.owner, key.id)
            return None
        if not hmac.compare_digest(signed_in.page_digest, hash_page_secret(page_secret)):
            message = "the browser's cookie belongs to a sign-in of another page"
            raise CredentialRefused(message, "sign in again", signed_in.owner, signed_in.key_id)
        if signed_in.key_digest is None:
            return Caller(signed_in.owner, scopes=tuple(map(Scope, signed_in.scopes)))
        # The digest only says whether the key still has the secret that began the session.
        caller = self._by_digest(session, signed_in.key_digest)
        key_of_session = signed_in.owner, signed_in.key_id or ""
        return caller if caller and (caller.owner, caller.key_id) == key_of_session else None

    def _by_digest(self, session: Session, digest: str) -> Caller | None:
        # Compare every entry in constant time, so that the response time reveals nothing.
        owners = [
            name
            for name, key_digest in self._keys.items()
            if hmac.compare_digest(digest.encode(), key_digest.encode())
        ]
        if owners:
            return Caller(owners[0])
        key = ApiKeys(session).find_by_digest(digest)
        if key is None:
            return None
        # A caller that presents the whole key may know why it is refused.
        if key.revoked_at is not None:
            raise CredentialRefused(f"the API key {key.id} was revoked", ANOTHER, key.owner, key.id)
        if key.expires_at is not None and key.expires_at <= read_clock(session):
            raise CredentialRefused(f"the API key {key.id} has expired", ANOTHER, key.owner, key.id)
        return Caller(key.owner, key.id, key.scopes)
