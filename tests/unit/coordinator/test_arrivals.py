"""Event streams: a few start at a time, and a key follows a limited number."""

from typing import Any

import anyio
import pytest
from starlette.requests import Request

from mallorn.core.api_keys import Scope, hash_secret
from mallorn.core.errors import Unauthorized
from mallorn.core.settings import Settings
from mallorn.services.coordinator.web import request_limits as module
from mallorn.services.coordinator.web.authenticator import Caller
from mallorn.services.coordinator.web.request_limits import StreamAdmission
from tests.fixtures.coordinator import Coordinator, OwnedRows, Start
from tests.unit.coordinator.test_request_limits import wire

SCOPE = {"type": "http", "method": "GET", "path": "/api/v1/jobs/a/events", "headers": []}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """One database does: nothing here is SQL."""
    return sqlite_url


class Parts:
    """An app's context that knows its settings only; the key is the owner's name."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(**settings)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def authenticate(_parts: Parts, request: Request) -> Caller:
        if (owner := request.headers.get("authorization")) is None:
            raise Unauthorized
        return Caller(owner)

    monkeypatch.setattr(module, "authenticate_request", authenticate)


class App:
    """Counts streams that start at once; streams go on until the event `over`."""

    def __init__(self, **settings: Any) -> None:
        self.inside = self.most = self.served = 0
        self.over = anyio.Event()
        self.told: list[dict[str, Any]] = []
        self.admission = StreamAdmission(self, Parts(**settings))  # type: ignore[arg-type]

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await anyio.sleep(0)
        self.inside -= 1
        self.served += 1
        await send({"type": "http.response.start", "status": 200})
        await self.over.wait()

    async def ask(self, owner: str | None = "ada", **scope: Any) -> None:
        headers = [(b"authorization", owner.encode())] if owner else []

        async def tell(message: Any) -> None:
            if message.get("status", 200) != 200:
                self.told.append(message)

        await self.admission(SCOPE | {"headers": headers} | scope, nothing, tell)

    @property
    def statuses(self) -> set[int]:
        return {message["status"] for message in self.told}


async def nothing(*_words: Any) -> Any:
    """Receives or sends nothing."""


async def come(app: App, count: int) -> None:
    """Ask for many streams at once; end them when all are open or refused."""
    app.over = anyio.Event()
    until = app.served + len(app.told) + count
    async with anyio.create_task_group() as group:
        for _ in range(count):
            group.start_soon(app.ask)
        while app.served + len(app.told) < until:
            await anyio.sleep(0)
        app.over.set()


def test_all_are_served_a_few_at_a_time_while_streams_go_on() -> None:
    app = App()
    anyio.run(come, app, 500)
    assert app.told == []
    assert app.served == 500
    assert 1 < app.most <= module.AT_ONCE


def test_too_many_are_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    app = App()
    anyio.run(come, app, 500)
    assert app.served + len(app.told) == 500
    assert app.served >= 10
    assert app.statuses == {503}
    moments = {dict(message["headers"])[b"retry-after"] for message in app.told}
    assert len(moments) > 5, "they would all come again at once"


def test_a_key_follows_a_limited_number_of_streams() -> None:
    app = App(quota_streams=20)

    async def twice() -> None:
        await come(app, 50)
        assert (app.served, len(app.told), app.statuses) == (20, 30, {429})
        await come(app, 20)
        assert app.served == 40, "streams that ended count no more"
        assert app.admission.streams.totals == {}

    anyio.run(twice)


def test_without_a_key_no_slot_is_taken() -> None:
    app = App()
    app.over.set()
    anyio.run(app.ask, None)
    assert (app.served, app.statuses) == (0, {401})
    assert dict(app.told[0]["headers"])[b"www-authenticate"] == b"Bearer"


@pytest.mark.parametrize(
    "scope", [{"path": "/api/v1/jobs"}, {"method": "POST"}, {"path": "/api/v1/owners/events"}]
)
def test_other_requests_are_not_held_up(monkeypatch: pytest.MonkeyPatch, scope: dict[str, str]) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 0)

    async def ask() -> None:
        app = App()
        app.over.set()
        await app.ask(**scope)
        assert app.served == 1

    anyio.run(ask)


def test_a_stream_that_fails_gives_its_slots_back() -> None:
    class Failing(App):
        async def __call__(self, *_words: Any) -> None:
            raise ValueError("broken")

    app = Failing()
    for _ in range(2 * module.AT_ONCE):
        with pytest.raises(ValueError, match="broken"):
            anyio.run(app.ask)


def test_every_event_stream_of_the_api_is_admitted_here(coordinator: Coordinator) -> None:
    paths = coordinator.http.get("/openapi.json").json()["paths"]
    streams = {
        path.replace("{job_id}", "a")
        for path, operations in paths.items()
        for operation in operations.values()
        if "text/event-stream" in operation.get("responses", {}).get("200", {}).get("content", {})
    }
    assert streams == {SCOPE["path"]}


def test_bodies_that_never_come_delay_no_event_stream(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of scope `read` announces bodies on paths that look like a stream's."""
    monkeypatch.undo()  # keys are real here
    coordinator = start(api_keys={"ada": hash_secret("a key")})
    job = OwnedRows(coordinator.database, owner="ada").job_id
    reader = coordinator.new_key("eve", Scope.READ).key
    lines = [wire(coordinator) for _ in range(module.AT_ONCE)]
    for line in lines:
        head = f"POST /api/v1/owners/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {reader}\r\n"
        line.sendall(f"{head}Content-Length: 10\r\n\r\n".encode())
    headers = {"Authorization": "Bearer a key"}
    with coordinator.http.stream("GET", f"/jobs/{job}/events", headers=headers) as stream:
        assert stream.status_code == 200
    for line in lines:
        line.close()


def test_scopes_are_checked_before_a_body_arrives(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    coordinator = start()
    reader = coordinator.new_key("eve", Scope.READ).key
    for line, path in (("POST", "/jobs"), ("PUT", "/models"), ("POST", "/keys")):
        with wire(coordinator) as client, client.makefile("rb") as answer:
            head = f"{line} /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {reader}\r\n"
            client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n".encode())
            assert answer.readline().startswith(b"HTTP/1.1 403"), path
