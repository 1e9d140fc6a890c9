"""Who is asking, and whether they may."""

from contextlib import suppress
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from db.repositories.jobs import Jobs
from mallorn.core.api_keys import Scope
from mallorn.core.errors import NotFound
from services.coordinator.web.app_context import PartsDep
from services.coordinator.web.authenticator import LocalPeer
from services.coordinator.web.caller_scopes import SCOPES, Caller

COOKIE: Final = "mallorn_session"
PEER: Final = "peer"  # where the server notes in a request's state who is at the other end
_bearer = HTTPBearer(
    auto_error=False,
    description="An API key; where there are none, the user who runs the service needs none.",
)
Presented = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def shown(request: Request, presented: Presented) -> tuple[str | None, str | None, LocalPeer | None]:
    """The key and the cookie of a request, as they came, and which program sent it."""
    return presented.credentials if presented else None, request.cookies.get(COOKIE), peer_of(request)


def peer_of(request: Request) -> LocalPeer | None:
    """The program that sent a request; None: this process."""
    return getattr(request.state, PEER, None)


def get_caller(request: Request, parts: PartsDep, presented: Presented) -> Caller:
    """Whose key, or whose sign-in, was presented.

    Raises Unauthorized, Forbidden for want of a scope, and TooMany.
    """
    caller = parts.door.caller(*shown(request, presented))
    request.state.caller = caller  # what stands around the routes asks for it
    parts.rates.take((caller.owner, caller.key_id), caller.owner)
    caller.check(tuple(map(Scope, request.scope["route"].openapi_extra[SCOPES])))
    return caller


CallerDep = Annotated[Caller, Depends(get_caller)]


def get_owner(caller: CallerDep) -> str:
    """Whose things the request is about."""
    return caller.owner


OwnerDep = Annotated[str, Depends(get_owner)]


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
