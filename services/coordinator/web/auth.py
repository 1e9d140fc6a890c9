"""Who is asking: an owner is the name of the key that was presented."""

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from mallorn.core.errors import Unauthorized
from services.coordinator.web.callers import LOCAL, Caller, scopes_of
from services.coordinator.web.parts import PartsDep

_bearer = HTTPBearer(auto_error=False, description="An API key; none is needed on loopback without keys.")
Presented = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def get_caller(request: Request, parts: PartsDep, presented: Presented) -> Caller:
    """Whose key was presented; without any keys configured there is one owner, `local`, who may do all."""
    caller = _known(parts.settings.api_keys, presented)
    request.state.caller = caller  # what stands around the routes asks for it
    caller.check(scopes_of(request.scope["route"].openapi_extra, request.method))
    return caller


def _known(keys: dict[str, str], presented: HTTPAuthorizationCredentials | None) -> Caller:
    if not keys:
        return LOCAL
    if presented is None:
        raise Unauthorized(hint="set MALLORN_API_KEY or --api-key")
    owner = _owner_of(presented.credentials, keys)
    if owner is None:
        raise Unauthorized("this API key is not known here", hint="check MALLORN_API_KEY")
    return Caller(owner)


def _owner_of(key: str, known: dict[str, str]) -> str | None:
    digest = hashlib.sha256(key.encode()).hexdigest()
    # Every entry is compared, and in constant time, so that the answer's delay tells nothing.
    owners = [
        name for name, expected in known.items() if hmac.compare_digest(digest.encode(), expected.encode())
    ]
    return owners[0] if owners else None


def get_owner(caller: Annotated[Caller, Depends(get_caller)]) -> str:
    """Whose things the request is about."""
    return caller.owner


CallerDep = Annotated[Caller, Depends(get_caller)]
OwnerDep = Annotated[str, Depends(get_owner)]
