"""Who did what is written down, whatever the route, and whether it was allowed or not."""

import re
from unittest.mock import Mock

import httpx
import pytest
from sqlalchemy import text, update

from mallorn.core.api_keys import Scope, hash_secret
from mallorn.core.errors import Unavailable
from mallorn.db.repositories.access_control import Audit
from mallorn.db.tables import AuditRow
from mallorn.services.coordinator.web.audit_log import MOST_PER_MINUTE
from tests.fixtures.coordinator import PAGE, Coordinator, Start
from tests.fixtures.issuer import CLIENT, SECRET, issuing

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
    with monkeypatch.context() as broken:
        broken.setattr(Audit, "add", Mock(side_effect=Unavailable("the database does not answer")))
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


def details(coordinator: Coordinator, key: str) -> list[str]:
    return [item["detail"] for item in coordinator.ask(key, "GET", "/audit").json()["items"]]


def test_refusals_of_one_key_are_few_entries(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(MOST_PER_MINUTE, True, 2)
    coordinator = start()
    reader = coordinator.new_key("bob", Scope.READ).key
    for _ in range(7):
        assert coordinator.ask(reader, "POST", "/jobs/1/pause").status_code == 403
    assert [status for _, _, status in told(coordinator, reader)] == [403] * 2
    assert caplog.text.count("not in the audit log: POST /api/v1/jobs/1/pause by bob") == 5


def test_a_flood_of_one_key_hides_nothing_of_another_or_of_credentials(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOST_PER_MINUTE, False, 2)
    coordinator = start()
    admin = coordinator.new_key("ada", Scope.ADMIN).key
    for _ in range(5):
        coordinator.ask(admin, "POST", "/session")
    made = [coordinator.ask(admin, "POST", "/keys", json={"name": "x"}).json()["id"] for _ in range(5)]
    told_now = " ".join(details(coordinator, admin))
    assert told_now.count("began a browser session") == 2
    assert all(f"key {key_id}" in told_now for key_id in made)


def test_a_known_credential_that_is_refused_is_kept_with_its_owner_and_id(coordinator: Coordinator) -> None:
    admin, revoked = coordinator.new_key("ada", Scope.ADMIN).key, coordinator.new_key("bob", Scope.READ)
    cookie = coordinator.ask(revoked.key, "POST", "/session").cookies.popitem()[1]
    coordinator.http.cookies.clear()
    assert coordinator.ask(cookie, "GET", "/jobs").status_code == 401
    coordinator.ask(admin, "DELETE", f"/keys/{revoked.id}")
    assert coordinator.ask(revoked.key, "GET", "/jobs").status_code == 401
    items = coordinator.ask(admin, "GET", "/audit").json()["items"]
    assert [(item["owner"], item["key_id"], item["detail"]) for item in items if item["status"] == 401] == [
        ("bob", revoked.id, f"the API key {revoked.id} was revoked"),
        ("bob", revoked.id, "this is the cookie of a browser session, not an API key"),
    ]


def test_each_credential_of_a_sign_in_is_kept(start: Start) -> None:
    with issuing() as issuer:
        known = {"oidc_issuer": issuer.url, "oidc_client_id": CLIENT, "oidc_client_secret": SECRET}
        coordinator = start(**known, oidc_allowed=["@example.org"])
        asked = {"port": 2000, "challenge": hash_secret("a secret"), "name": "laptop"}
        for query in (asked, {"page": PAGE}):
            there = coordinator.http.get("/session/oidc", params=query).headers["Location"]
            answer = coordinator.http.get(httpx.get(there, verify=False).headers["Location"])
            if query is asked:
                (code,) = re.findall(r'value="([^"]+)"', answer.text)
        coordinator.land(answer)
        exchange = {"code": code, "verifier": "a secret", "name": "laptop"}
        key = coordinator.http.post("/session/oidc/key", json=exchange).json()
        coordinator.http.delete("/session")
        owner = "ada@example.org"
        items = coordinator.ask(key["key"], "GET", "/audit").json()["items"]
        assert {item["owner"] for item in items} == {item["subject"] for item in items} == {owner}
        assert [item["detail"] for item in items] == [
            f"first use of key {key['id']}",
            "ended a browser session",
            f"key {key['id']}, which may read, submit",
            f"began a browser session by {httpx.URL(issuer.url).netloc.decode()}",
            "got a code for mallorn login",
        ]


def test_an_erased_owners_name_is_not_kept_again(start: Start) -> None:
    coordinator = start(api_keys={"grace": hash_secret("hers")})
    admin = coordinator.new_key("ada", Scope.ADMIN).key
    coordinator.ask("hers", "POST", "/session")
    coordinator.ask(admin, "POST", "/owners/erase", json={"owner": "grace"})
    assert coordinator.ask("hers", "POST", "/jobs").status_code == 401
    assert "grace" not in coordinator.ask(admin, "GET", "/audit").text


def test_entries_over_the_limit_go_oldest_first(coordinator: Coordinator) -> None:
    for number in range(5):
        coordinator.http.delete(f"/models/{number}")
    with coordinator.database.transaction() as session:
        assert Audit(session).delete_surplus_entries(kept_entries=3, limit=10) == 2
    assert [what for _, what, _ in told(coordinator)] == [f"DELETE /api/v1/models/{at}" for at in (4, 3, 2)]
