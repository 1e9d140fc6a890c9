"""Who asks, and what a route asks for.

A route needs `read` where its method only shows things, else `submit`. One that changes what is everybody's
says so with `openapi_extra=needs(Scope.ADMIN)`: there it is written in the API's description, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from mallorn.core.errors import Forbidden
from mallorn.core.scopes import ALL_SCOPES, Scope, allows

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SCOPES: Final = "x-scopes"  # where the API's description says who may
LOCAL_OWNER: Final = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose key was presented, and what it allows."""

    owner: str
    key_id: str = ""  # as `mallorn keys` lists it; empty where no such key was presented
    scopes: tuple[Scope, ...] = ALL_SCOPES

    def check(self, needed: tuple[Scope, ...]) -> None:
        """Raise Forbidden unless one of these scopes is among the caller's."""
        if not any(allows(self.scopes, scope) for scope in needed):
            raise Forbidden(
                f"this key has the scopes {', '.join(self.scopes)}; this needs {' or '.join(needed)}",
                hint=f"ask an admin for a key with   mallorn keys create NAME --scope {needed[0]}",
            )


LOCAL: Final = Caller(LOCAL_OWNER)


def needs(*scopes: Scope) -> dict[str, Any]:
    """What to write beside a route that needs one of these, and not what its method says."""
    return {SCOPES: [str(scope) for scope in scopes]}


def scopes_of(extra: Mapping[str, Any] | None, method: str) -> tuple[Scope, ...]:
    """What a route needs, by what stands beside it and by its method."""
    if extra and SCOPES in extra:
        return tuple(map(Scope, extra[SCOPES]))
    return (Scope.READ,) if method in SAFE_METHODS else (Scope.SUBMIT,)
