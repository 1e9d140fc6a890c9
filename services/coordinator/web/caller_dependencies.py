"""FastAPI dependencies that authenticate the caller and check scopes."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from fastapi.security.utils import get_authorization_scheme_param

from mallorn.core.api_keys import Scope
from mallorn.core.errors import NotFound
from mallorn.db.repositories.jobs import Jobs
from mallorn.services.coordinator.web.app_parts import AppParts, PartsDep
from mallorn.services.coordinator.web.authenticator import SCOPES, Caller, CredentialRefused, Credentials

COOKIE: Final = "mallorn_session"
#: Header with the secret of the page that began the session: other ports get its cookie, too.
PAGE_HEADER: Final = "X-Mallorn-Session"
PEER: Final = "peer"  # key in a request's state for the connection's LocalPeer
ADDITION: Final = "audit_addition"  # key of a request's state: its entry's subject, detail and key
_bearer = HTTPBearer(
    auto_error=False, description="An API key. Until one exists, the user who runs the service needs none."
)
Presented = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def cookie_name(request: Request, name: str) -> str:
    """Return a cookie's name with the request's port: browsers share cookies between ports."""
    port = request.headers.get("host", "").rpartition(":")[2]
    return f"{name}_{port}" if port.isascii() and port.isdigit() and len(port) <= 5 else name


def read_credentials(request: Request) -> Credentials:
    """Return what a request presents, not checked yet."""
    scheme, key = get_authorization_scheme_param(request.headers.get("authorization"))
    return Credentials(
        key if scheme.lower() == "bearer" and key else None,
        request.cookies.get(cookie_name(request, COOKIE)),
        request.headers.get(PAGE_HEADER),
        getattr(request.state, PEER, None),
    )


def add_to_audit_entry(request: Request, owner: str, detail: str, key_id: str = "") -> None:
    """Add a credential's owner to the request's audit entry, which the owner sees."""
    setattr(request.state, ADDITION, (owner, detail, key_id))


def authenticate_request(parts: AppParts, request: Request) -> Caller:
    """Authenticate the caller of a request, and count the request once for the rate limit.

    Raises Unauthorized if no valid credentials are given, TooMany above the rate limit.
    """
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is None:
        try:
            caller = parts.door.authenticate(read_credentials(request))
        except CredentialRefused as error:
            detail = error.message.removeprefix(f"{error.owner} ")  # may be erased later
            add_to_audit_entry(request, error.owner, detail, error.key_id)
            raise
        parts.rates.count_request((caller.owner, caller.key_id), caller.owner)
        request.state.caller = caller
    return caller


def get_caller(request: Request, parts: PartsDep, _described: Presented) -> Caller:
    """Admit the caller. Raises Forbidden without a scope, or what `authenticate_request` does."""
    caller = authenticate_request(parts, request)
    caller.require_any_scope(tuple(map(Scope, request.scope["route"].openapi_extra[SCOPES])))
    return caller


CallerDep = Annotated[Caller, Depends(get_caller)]


def get_owner(caller: CallerDep) -> str:
    return caller.owner


OwnerDep = Annotated[str, Depends(get_owner)]


def limit_slow_requests(parts: PartsDep, owner: OwnerDep) -> Iterator[None]:
    """Limit the owner's concurrent slow requests. Raises TooMany if all are taken."""
    with parts.few.count_request(owner):
        yield


#: Dependency for routes with slow responses.
FewAtOnce = Depends(limit_slow_requests)


def get_job_owner(parts: PartsDep, caller: CallerDep, job_id: str) -> str:
    """Return a job's owner: the caller or, if an admin gives the whole id, any owner."""
    if caller.visible_owner is not None:
        return caller.owner
    with parts.database.session() as session:
        with suppress(NotFound):
            return Jobs(session).find(job_id, caller.owner).owner
        return Jobs(session).get(job_id, None).owner


#: For routes that admins may use on all jobs: to see and to stop them.
JobOwnerDep = Annotated[str, Depends(get_job_owner)]
