"""Those who come at once to follow jobs are let in a few at a time, and take up nothing while they wait."""

import anyio
import pytest

from mallorn.services.coordinator.web import request_limits as module
from mallorn.services.coordinator.web.request_limits import StreamAdmission

SCOPE = {"type": "http", "path": "/api/v1/jobs/a/events", "headers": []}


class App:
    """Serves at most so many at a time; a stream goes on until the end of all."""

    def __init__(self) -> None:
        self.inside = self.most = self.served = 0
        self.over = anyio.Event()

    async def __call__(self, _scope, _receive, send) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await anyio.sleep(0)
        self.inside -= 1
        self.served += 1
        await send({"type": "http.response.start", "status": 200})
        await self.over.wait()


async def nothing(*_words) -> None:
    """Receives or sends nothing."""


def come(app: App, arrivals: StreamAdmission, count: int) -> list[dict]:
    """All at once; what those were told who were not let in."""
    told: list[dict] = []

    async def tell(message) -> None:
        if message.get("status") == 503:
            told.append(message)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(arrivals, SCOPE, nothing, tell)
            while app.served + len(told) < count:
                await anyio.sleep(0)
            app.over.set()

    anyio.run(all_of_them)
    return told


def test_all_are_served_a_few_at_a_time_while_streams_go_on() -> None:
    app = App()
    assert come(app, StreamAdmission(app), 500) == []
    assert app.served == 500
    assert app.most == module.AT_ONCE


def test_too_many_are_told_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 10)
    app = App()
    told = come(app, StreamAdmission(app), 500)
    assert app.served + len(told) == 500
    assert app.served >= 10
    moments = {dict(message["headers"])[b"retry-after"] for message in told}
    assert len(moments) > 5, "they would all come again at once"


def test_whoever_asks_for_something_else_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 0)
    app = App()
    app.over.set()
    anyio.run(StreamAdmission(app), SCOPE | {"path": "/api/v1/jobs"}, nothing, nothing)
    assert app.served == 1


def test_one_that_fails_leaves_its_place() -> None:
    async def fails(*_words) -> None:
        raise ValueError("broken")

    arrivals = StreamAdmission(fails)
    for _ in range(2 * module.AT_ONCE):
        with pytest.raises(ValueError, match="broken"):
            anyio.run(arrivals, SCOPE, nothing, nothing)
