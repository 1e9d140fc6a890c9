"""The caller of a request, and the scopes that routes need.

A route with a safe method needs `read`, any other `submit`. Routes that change shared things
declare `openapi_extra=needs(Scope.ADMIN)`, which adds the scope to the OpenAPI document.
"""

from dataclasses import dataclass
from typing import Any, Final

from fastapi import APIRouter
from fastapi.routing import APIRoute

from mallorn.core.api_keys import ALL_SCOPES, Scope, allows
from mallorn.core.errors import Forbidden

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SCOPES: Final = "x-scopes"  # key in the OpenAPI document
LOCAL_OWNER: Final = "local"


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated owner, with the key and its scopes."""

    owner: str
    key_id: str = ""  # as `mallorn keys` lists it; empty without a stored key
    scopes: tuple[Scope, ...] = ALL_SCOPES

    @property
    def sees(self) -> str | None:
        """The owner whose keys and audit entries the caller may see; None: all owners."""
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
            f"this key has the scopes {', '.join(self.scopes)}, but this needs {needed}",
            hint=f"ask an admin for a new key: mallorn keys create NAME --scope {first}",
        )


LOCAL: Final = Caller(LOCAL_OWNER)


def needs(*scopes: Scope) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that needs one of these scopes."""
    return {SCOPES: [str(scope) for scope in scopes]}


def settle(router: APIRouter) -> None:
    """Set the default scope of every route that does not declare its own."""
    for route in router.routes:
        assert isinstance(route, APIRoute)  # noqa: S101 - these routers hold nothing else
        default = Scope.READ if SAFE_METHODS.issuperset(route.methods or ()) else Scope.SUBMIT
        route.openapi_extra = needs(default) | (route.openapi_extra or {})
