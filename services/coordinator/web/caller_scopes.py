"""Who asks, and what a route asks for.

A route needs `read` where its method only shows things, else `submit`. One that changes what is everybody's
says so with `openapi_extra=needs(Scope.ADMIN)`: there it is written in the API's description, too.
"""

from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from fastapi.routing import APIRoute

from mallorn.core.api_keys import ALL_SCOPES, Scope, allows
from mallorn.core.errors import Forbidden

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SCOPES: Final = "x-scopes"  # where the API's description says who may
LOCAL_OWNER: Final = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose key was presented, and what it allows."""

    owner: str
    key_id: str = ""  # as `mallorn keys` lists it; empty where no such key was presented
    scopes: tuple[Scope, ...] = ALL_SCOPES

    @property
    def sees(self) -> str | None:
        """Whose keys and deeds they see; None: everybody's."""
        return None if allows(self.scopes, Scope.ADMIN) else self.owner

    def check(self, needed: tuple[Scope, ...]) -> None:
        """Raise Forbidden unless one of these scopes is among the caller's."""
        if not any(allows(self.scopes, scope) for scope in needed):
            raise self._refusal(" or ".join(needed), needed[0])

    def check_all(self, needed: tuple[Scope, ...]) -> None:
        """Raise Forbidden unless all of these scopes are among the caller's."""
        if missing := [scope for scope in needed if not allows(self.scopes, scope)]:
            raise self._refusal(" and ".join(missing), missing[0])

    def _refusal(self, needed: str, first: Scope) -> Forbidden:
        return Forbidden(
            f"this key may {', '.join(self.scopes)}, and this needs {needed}",
            hint=f"ask an admin for another: mallorn keys create NAME --scope {first}",
        )


LOCAL: Final = Caller(LOCAL_OWNER)


def needs(*scopes: Scope) -> dict[str, Any]:
    """What to write beside a route that needs one of these, and not what its method says."""
    return {SCOPES: [str(scope) for scope in scopes]}


def settle(router: APIRouter) -> None:
    """Write beside every route what it needs, where it does not say so itself."""
    for route in router.routes:
        assert isinstance(route, APIRoute)  # noqa: S101 - these routers hold nothing else
        usual = Scope.READ if SAFE_METHODS.issuperset(route.methods or ()) else Scope.SUBMIT
        route.openapi_extra = needs(usual) | (route.openapi_extra or {})
