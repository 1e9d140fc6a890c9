"""Who is asking, and whether they may."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from db.repositories.jobs import Jobs
from mallorn.core.api_keys import Scope
from mallorn.core.errors import NotFound
from services.coordinator.web.app_context import AppContext, PartsDep
from services.coordinator.web.authenticator import LocalPeer
from services.coordinator.web.caller_scopes import SCOPES, Caller

COOKIE: Final = "mallorn_session"
PEER: Final = "peer"  # where the server notes in a request's state who is at the other end
_bearer = HTTPBearer(
    auto_error=False,
    description="An API key; where there are none, the user who runs the service needs none.",
)
Presented = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def cookie_name(request: Request, name: str) -> str:
    """Return a cookie's name with the port that the browser asked: browsers keep one cookie for all ports."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{name}_{port}" if port.isascii() and port.isdigit() and len(port) <= 5 else name


def shown(request: Request) -> tuple[str | None, str | None, LocalPeer | None]:
    """Return the key and the cookie of a request, as they came, and which program sent it."""
    scheme, key = get_authorization_scheme_param(request.headers.get("authorization"))
    cookie = request.cookies.get(cookie_name(request, COOKIE))
    peer: LocalPeer | None = getattr(request.state, PEER, None)  # None: this process
    return key if scheme.lower() == "bearer" and key else None, cookie, peer


def admit(parts: AppContext, request: Request) -> Caller:
    """Return whose key, or whose sign-in, was presented, and count the request once.

    Raises Unauthorized, and TooMany. The audit log has those alone who are admitted.
    """
    known: Caller | None = getattr(request.state, "caller", None)
    if known is None:
        known = parts.door.caller(*shown(request))
        parts.rates.take((known.owner, known.key_id), known.owner)
        request.state.caller = known
    return known


def get_caller(request: Request, parts: PartsDep, _described: Presented) -> Caller:
    """Admit whoever asks, if the scopes allow it. Raises Unauthorized, TooMany and Forbidden."""
    caller = admit(parts, request)
    caller.check(tuple(map(Scope, request.scope["route"].openapi_extra[SCOPES])))
    return caller


CallerDep = Annotated[Caller, Depends(get_caller)]


def get_owner(caller: CallerDep) -> str:
    """Whose things the request is about."""
    return caller.owner


OwnerDep = Annotated[str, Depends(get_owner)]


def take_turn(parts: PartsDep, owner: OwnerDep) -> Iterator[None]:
    """Let an answer that takes long be one of a few at a time. Raises TooMany."""
    with parts.few.one(owner):
        yield


#: What a route says whose answer takes long.
FewAtOnce = Depends(take_turn)


def get_job_owner(parts: PartsDep, caller: CallerDep, job_id: str) -> str:
    """Whose job a request means: the caller's own or, for an admin, anybody's by its whole id."""
    if caller.sees is not None:
        return caller.owner
    with parts.database.session() as session:
        with suppress(NotFound):
            return Jobs(session).find(job_id, caller.owner).owner
        return Jobs(session).get(job_id, None).owner


#: For what an admin may do with everybody's jobs: see them, and stop them.
JobOwnerDep = Annotated[str, Depends(get_job_owner)]
