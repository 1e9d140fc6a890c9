"""Who did what is written down, whatever the route, and whether it was allowed or not."""

import pytest
from sqlalchemy import text, update

from mallorn.core.api_keys import Scope
from mallorn.core.errors import Unavailable
from mallorn.db.repositories.access_control import Audit
from mallorn.db.tables import AuditRow
from tests.fixtures.coordinator import Coordinator

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def told(coordinator: Coordinator, key: str | None = None) -> list[tuple[str, str, int]]:
    items = coordinator.ask(key, "GET", "/audit").json()["items"]
    return [
        (item["owner"], f"{item['method']} {item['path']}", item["status"])
        for item in items
        if item["method"] != "USE"  # the first use of a key
    ]


def test_what_changes_something_is_kept_and_what_reads_is_not(coordinator: Coordinator) -> None:
    model = coordinator.upload()
    coordinator.http.get("/jobs")
    coordinator.http.delete(f"/models/{model}")
    assert told(coordinator) == [
        ("local", f"DELETE /api/v1/models/{model}", 204),
        ("local", "PUT /api/v1/models", 200),
    ]


def test_refusals_are_kept_with_the_key_that_was_presented(coordinator: Coordinator) -> None:
    reader = coordinator.new_key("bob", Scope.READ).key
    assert coordinator.ask(reader, "DELETE", "/jobs/nope").status_code == 403
    entry = next(
        item for item in coordinator.ask(reader, "GET", "/audit").json()["items"] if item["method"] != "USE"
    )
    assert (entry["owner"], entry["status"]) == ("bob", 403)
    assert reader.startswith(f"mln_{entry['key_id']}_")
    admin = coordinator.new_key("ada", Scope.ADMIN).key
    assert coordinator.ask(admin, "DELETE", "/jobs/nope").status_code == 404
    assert [status for _, _, status in told(coordinator, admin)] == [404, 403], "an admin sees everybody's"
    assert [status for _, _, status in told(coordinator, reader)] == [403]


def test_strangers_do_not_fill_it(coordinator: Coordinator) -> None:
    admin = coordinator.new_key("ada", Scope.ADMIN).key
    assert coordinator.http.post("/keys", json={"name": "x"}).status_code == 401
    assert told(coordinator, admin) == []


def test_neither_bodies_nor_parameters_are_in_it(coordinator: Coordinator) -> None:
    coordinator.http.put("/models", params={"name": "a-secret-name"}, content=b"a secret")
    with coordinator.database.session() as session:
        row = " ".join(map(str, session.execute(text("SELECT * FROM audit")).one()))
    assert "secret" not in row


def test_what_was_done_is_answered_even_if_it_cannot_be_written_down(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object) -> None:
        raise Unavailable("the database does not answer")

    with monkeypatch.context() as broken:
        broken.setattr(Audit, "add", away)
        assert coordinator.upload()
    assert "not in the audit log: PUT /api/v1/models by local" in caplog.text
    assert told(coordinator) == []


def test_pages_go_on_where_the_last_one_ended(coordinator: Coordinator) -> None:
    for number in range(5):
        coordinator.http.delete(f"/models/{number}")
    first = coordinator.http.get("/audit", params={"limit": 3}).json()
    second = coordinator.http.get("/audit", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    paths = [item["path"] for page in (first, second) for item in page["items"]]
    assert paths == [f"/api/v1/models/{number}" for number in (4, 3, 2, 1, 0)]
    assert second["next_cursor"] is None


def test_old_entries_go(coordinator: Coordinator) -> None:
    for number in range(3):
        coordinator.http.delete(f"/models/{number}")
    with coordinator.database.transaction() as session:
        session.execute(update(AuditRow).where(AuditRow.path.endswith("0")).values(at=1.0))
    with coordinator.database.transaction() as session:
        assert Audit(session).delete_old_entries(days=1, limit=10) == 1
    assert len(told(coordinator)) == 2
