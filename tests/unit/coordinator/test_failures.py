"""One error shape everywhere, and nothing of our insides in it."""

import logging
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
from sqlalchemy import text, update

import mallorn
from mallorn.core import queues
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from mallorn.db.tables import Tick
from mallorn.services.coordinator.web.app_parts import Waker
from tests.fixtures.coordinator import Coordinator, Start

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def assert_shape(answer: httpx.Response, status: int, error: str) -> dict[str, str]:
    body: dict[str, str] = answer.json()
    assert (answer.status_code, body["error"]) == (status, error)
    assert sorted(body) == ["detail", "error", "hint", "request_id"]
    assert body["detail"]
    assert "Traceback" not in answer.text
    return body


def test_routes_bodies_and_methods_that_are_wrong_share_one_shape(coordinator: Coordinator) -> None:
    http = coordinator.http
    assert_shape(http.get("/nowhere"), 404, "NotFound")
    assert_shape(http.get("/jobs/nope"), 404, "NotFound")
    assert_shape(http.delete("/jobs"), 405, "MethodNotAllowed")
    assert_shape(http.post("/jobs"), 422, "InvalidRequest")
    assert_shape(http.post("/jobs", content=b"{"), 422, "InvalidRequest")
    assert_shape(http.post("/jobs", json=[1]), 422, "InvalidRequest")
    assert_shape(http.get("/jobs", params={"limit": 0}), 422, "InvalidRequest")
    assert_shape(http.get("/records", params={"limit": 10**9}), 422, "InvalidRequest")
    assert_shape(http.get("/records", params={"target": "{"}), 422, "InvalidTarget")


def test_a_body_that_is_no_json_is_told_with_the_place(coordinator: Coordinator) -> None:
    for content, place in ((b"{", 1), (b"nonsense", 0)):
        answer = coordinator.http.post("/jobs", content=content, headers={"Content-Type": "application/json"})
        body = assert_shape(answer, 422, "InvalidRequest")
        assert body["detail"].startswith("the body is not JSON: expecting ")
        assert body["detail"].endswith(f" at character {place}")


def test_an_unforeseen_error_tells_nothing_and_is_logged(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Jobs, "list", Mock(side_effect=RuntimeError("secret of the inside")))
    with caplog.at_level(logging.ERROR):
        answer = coordinator.http.get("/jobs")
    assert_shape(answer, 500, "MallornError")
    assert "secret" not in answer.text
    assert "secret of the inside" in caplog.text


def test_healthz_needs_no_other_part(start: Start) -> None:
    coordinator = start(database_url="postgresql://127.0.0.1:1/none", redis_url="redis://127.0.0.1:1/0")
    alive = {"status": "ok", "version": mallorn.__version__, "api": "/api/v1"}
    assert coordinator.http.get(coordinator.url + "/healthz").json() == alive


def test_readyz_names_the_part_that_is_missing(start: Start, tmp_path: Path) -> None:
    ready = start()
    answer = ready.http.get(ready.url + "/readyz")
    parts = {"status": "ready", "database": "ok", "migrations": "ok", "broker": "ok", "events": "ok"}
    assert answer.json().items() > parts.items()
    for settings, said in (
        ({"database_url": "postgresql://127.0.0.1:1/none"}, "the database does not answer"),
        ({"database_url": f"sqlite:///{tmp_path / 'bare.db'}"}, "migrations: "),
        ({"redis_url": "redis://127.0.0.1:1/0"}, "the broker does not answer"),
    ):
        other = start(**settings)
        answer = other.http.get(other.url + "/readyz")
        assert said in assert_shape(answer, 503, "Unavailable")["detail"]


def control_of(coordinator: Coordinator) -> str:
    """What readiness says of control; requests are served in any case."""
    answer = coordinator.http.get(coordinator.url + "/readyz")
    assert answer.status_code == 200
    return str(answer.json()["control"])


def test_readyz_tells_for_how_long_nobody_swept_or_reaped(coordinator: Coordinator) -> None:
    assert "control.sweep has not run yet" in control_of(coordinator)
    with coordinator.database.transaction() as session:
        for loop, every_sec in queues.TICKS.items():
            LoopTicks(session).begin_turn(loop, every_sec)
            LoopTicks(session).record_turn_end(loop)
    assert control_of(coordinator) == "ok"
    with coordinator.database.transaction() as session:
        reaper = update(Tick).where(Tick.name == queues.REAP)
        session.execute(reaper.values(done_at=Tick.done_at - 3600))
    said = control_of(coordinator)
    assert said.startswith("periodic tasks are late: control.reap last ran 36")
    assert "sweep" not in said


def test_a_coordinator_beside_tables_of_the_next_version_serves_on_and_says_so(
    coordinator: Coordinator,
) -> None:
    with coordinator.database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9.9.9'"))
    answer = coordinator.http.get(coordinator.url + "/readyz")
    assert (answer.status_code, coordinator.http.get("/jobs").status_code) == (200, 200)
    assert "a newer Mallorn (revision 9.9.9)" in answer.json()["migrations"]


def test_a_database_that_is_away_is_no_unforeseen_error(start: Start) -> None:
    coordinator = start(database_url="postgresql://127.0.0.1:1/none")
    body = assert_shape(coordinator.http.get("/jobs"), 503, "Unavailable")
    assert "MALLORN_DATABASE_URL" in body["hint"]


def test_nothing_connects_before_it_is_used(database_url: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    Waker("redis://127.0.0.1:1/0").close()
    Database(f"sqlite:///{tmp_path / 'none.db'}").dispose()
    assert sorted(tmp_path.iterdir()) == before


def test_the_root_says_where_to_go(coordinator: Coordinator) -> None:
    answer = coordinator.http.get(coordinator.url).json()
    assert (answer["docs"], answer["api"]) == ("/docs", "/api/v1")
    assert coordinator.http.get(coordinator.url + "/docs").status_code == 200
