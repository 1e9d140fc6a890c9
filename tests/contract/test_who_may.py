"""Every route of the API's description, asked by those who may not: a new one cannot be forgotten here."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest

from mallorn.core.api_keys import Scope
from mallorn.services.coordinator.app import create_app
from mallorn.services.coordinator.web.authenticator import SCOPES
from tests.fixtures.coordinator import Coordinator, OwnedRows, Start
from tests.fixtures.rows import MODEL

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

# Who asks for these needs no key: they tell no data, and a page must be able to sign in and out.
OPEN: Final = {
    "GET /healthz",
    "GET /readyz",
    "GET /api/v1/session",
    "DELETE /api/v1/session",
    "GET /api/v1/session/oidc",
    "GET /api/v1/session/oidc/callback",
    "POST /api/v1/session/oidc/key",  # needs a code and its secret
}
# Parameters in paths that name an owner's things, and those that name everybody's.
OWNED: Final = {"job_id", "model_id", "key_id"}
SHARED: Final = {"cost_model_id", "schedule_id"}
KNOWN: Final = OWNED | SHARED | {"index", "name", "file", "action", "digest"}
# What an admin may do with another owner's things.
ADMINS: Final = {
    "GET /api/v1/jobs/{job_id}",
    "POST /api/v1/jobs/{job_id}/pause",
    "POST /api/v1/jobs/{job_id}/cancel",
    "POST /api/v1/keys/{key_id}/rotate",
    "DELETE /api/v1/keys/{key_id}",
}
# Bodies without which a request is refused for another reason.
BODIES: Final[Mapping[str, dict[str, Any]]] = {
    "POST /api/v1/jobs": {"json": {"model_id": "0" * 64, "target": {"kind": "llvm"}, "trials": 1}},
    "PATCH /api/v1/jobs/{job_id}": {"json": {"labels": {"nightly": ""}}},
    "PUT /api/v1/uploads/{digest}/parts/{index}": {"content": b"x"},
    "POST /api/v1/keys": {"json": {"name": "ci"}},
}


@dataclass(frozen=True)
class Route:
    """An operation of the description."""

    method: str
    path: str
    scopes: frozenset[Scope] | None

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> set[str]:
        return set(re.findall(r"{(\w+)}", self.path))


def routes(coordinator: Coordinator) -> Iterator[Route]:
    document = create_app(coordinator.parts.settings).openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            scopes = frozenset(map(Scope, operation[SCOPES])) if SCOPES in operation else None
            yield Route(method.upper(), path, scopes)


@pytest.fixture
def ada(start: Start) -> Coordinator:
    """A coordinator where `ada` has a job, a model and a key."""
    return start(api_keys={"ada": "0" * 64})


def ask_path(route: Route, **named: str) -> str:
    """The route's path with these parameters; others are 1."""
    return route.path.format_map({name: named.get(name, "1") for name in route.parameters})


def ask(coordinator: Coordinator, route: Route, key: str | None, **named: str) -> httpx.Response:
    path = ask_path(route, **named)
    return coordinator.ask(key, route.method, coordinator.url + path, **BODIES.get(route.name, {}))


def test_only_what_tells_nothing_is_open(ada: Coordinator) -> None:
    assert {route.name for route in routes(ada) if route.scopes is None} == OPEN


def test_without_a_key_nothing_is_answered(ada: Coordinator) -> None:
    for route in routes(ada):
        answer = ask(ada, route, None)
        if route.name in OPEN:
            assert answer.status_code in (200, 204) or "/oidc" in route.path, route.name
            continue
        assert answer.status_code == 401, route.name
        assert answer.json()["error"] == "Unauthorized"
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_with_every_other_scope_nothing_is_answered(ada: Coordinator) -> None:
    keys = {scope: ada.new_key("ada", scope).key for scope in Scope}
    asked = 0
    for route in routes(ada):
        for scope in set(keys) - {Scope.ADMIN} - (route.scopes or set(Scope)):
            asked += 1
            answer = ask(ada, route, keys[scope])
            assert answer.status_code == 403, (route.name, scope)
            assert answer.json()["error"] == "Forbidden"
            assert "mallorn keys create" in answer.json()["hint"]
    assert asked > 50


def test_with_the_right_scope_the_key_is_no_obstacle(ada: Coordinator) -> None:
    ada.parts.stopping.set()  # streams of events end at once
    for scope in Scope:
        for route in routes(ada):
            if route.scopes and scope in route.scopes:
                answer = ask(ada, route, ada.new_key("ada", scope).key)
                assert answer.status_code not in (401, 403), route.name


def test_another_owners_things_are_not_there(ada: Coordinator) -> None:
    rows = OwnedRows(ada.database, "ada")
    hers = {"job_id": rows.job_id, "model_id": MODEL, "key_id": ada.new_key("ada", Scope.READ).id}
    mallory = ada.new_key("mallory", Scope.READ, Scope.SUBMIT).key
    asked = 0
    for route in routes(ada):
        assert route.parameters <= OWNED | SHARED | {"index", "name", "file", "action", "digest"}, (
            f"whose is it? {route.name}"
        )
        if route.parameters & OWNED:
            asked += 1
            answer = ask(ada, route, mallory, **hers)
            assert answer.status_code == 404, (route.name, answer.text)
    assert asked > 15


def test_an_admin_sees_and_stops_what_is_anothers_and_no_more(ada: Coordinator) -> None:
    rows = OwnedRows(ada.database, "ada")
    hers = {"job_id": rows.job_id, "model_id": MODEL, "key_id": ada.new_key("ada", Scope.READ).id}
    admin = ada.new_key("root", Scope.ADMIN).key
    opened = {
        route.name
        for route in routes(ada)
        if route.parameters & OWNED and ask(ada, route, admin, **hers).status_code != 404
    }
    assert opened == ADMINS
