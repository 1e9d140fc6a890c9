"""Who is asking: an owner is the name of the key that was presented."""

import hashlib
import hmac
from typing import Annotated, Final

from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from mallorn.core.errors import Unauthorized
from services.coordinator.web.parts import PartsDep

LOCAL_OWNER: Final = "local"
_bearer = HTTPBearer(auto_error=False, description="An API key; none is needed on loopback without keys.")


def get_owner(
    parts: PartsDep, presented: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> str:
    """The owner whose key was presented; without any keys configured there is one, `local`."""
    known = parts.settings.api_keys
    if not known:
        return LOCAL_OWNER
    if presented is None:
        raise Unauthorized(hint="set MALLORN_API_KEY or --api-key")
    owner = _owner_of(presented.credentials, known)
    if owner is None:
        raise Unauthorized("this API key is not known here", hint="check MALLORN_API_KEY")
    return owner


def _owner_of(key: str, known: dict[str, str]) -> str | None:
    digest = hashlib.sha256(key.encode()).hexdigest()
    # Every entry is compared, and in constant time, so that the answer's delay tells nothing.
    owners = [
        name for name, expected in known.items() if hmac.compare_digest(digest.encode(), expected.encode())
    ]
    return owners[0] if owners else None


OwnerDep = Annotated[str, Depends(get_owner)]
