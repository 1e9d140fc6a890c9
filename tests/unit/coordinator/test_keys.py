"""Keys and sign-ins over REST: who makes them, what they open, and when they stop."""

import json
from typing import Any

import pytest
from sqlalchemy import update

from mallorn.core.api_keys import Scope, hash_secret
from mallorn.db.tables import ApiKeyRow
from tests.fixtures.coordinator import Coordinator, Start

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_the_first_key_shuts_the_door(coordinator: Coordinator) -> None:
    answer = coordinator.http.post("/keys", json={"name": "first", "scopes": ["admin"]})
    assert answer.status_code == 201
    assert answer.json()["owner"] == "local", "what was submitted before stays with its owner"
    assert coordinator.http.get("/jobs").status_code == 401
    assert coordinator.ask(answer.json()["key"], "GET", "/jobs").status_code == 200


def test_a_key_is_told_once(coordinator: Coordinator) -> None:
    admin = coordinator.new_key().key
    new = coordinator.ask(admin, "POST", "/keys", json={"name": "ci", "owner": "bob"}).json()
    assert new["key"].startswith(f"mln_{new['id']}_")
    assert new["scopes"] == ["read", "submit"]
    listed = coordinator.ask(admin, "GET", "/keys")
    assert new["id"] in listed.text
    assert new["key"].removeprefix(f"mln_{new['id']}_") not in listed.text
    assert coordinator.ask(new["key"], "GET", "/keys").json()["items"][0]["owner"] == "bob"


def test_whoever_presents_a_key_that_is_over_is_told_why(coordinator: Coordinator) -> None:
    admin, revoked, expired = coordinator.new_key(), coordinator.new_key(), coordinator.new_key(days=1)
    assert coordinator.ask(revoked.key, "GET", "/jobs").status_code == 200
    assert coordinator.ask(admin.key, "DELETE", f"/keys/{revoked.id}").status_code == 204
    with coordinator.database.transaction() as session:
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == expired.id).values(expires_at=1.0))
    for key, word in ((revoked, "was revoked"), (expired, "has expired")):
        answer = coordinator.ask(key.key, "GET", "/jobs")
        assert answer.status_code == 401
        assert word in answer.json()["detail"]
    assert "does not know" in coordinator.ask(f"mln_{admin.id}_guessed", "GET", "/jobs").json()["detail"]


def test_rotating_gives_another_secret_at_once(coordinator: Coordinator) -> None:
    old = coordinator.new_key("ada", Scope.READ)
    new = coordinator.ask(old.key, "POST", f"/keys/{old.id}/rotate").json()
    assert coordinator.ask(old.key, "GET", "/jobs").status_code == 401
    assert coordinator.ask(new["key"], "GET", "/jobs").status_code == 200
    assert new["id"] == old.id


def test_a_rotated_key_has_a_grace_where_one_is_asked_for(coordinator: Coordinator) -> None:
    old = coordinator.new_key("ada", Scope.READ)
    new = coordinator.ask(old.key, "POST", f"/keys/{old.id}/rotate", params={"grace_minutes": 60}).json()
    for key in (old.key, new["key"]):
        assert coordinator.ask(key, "GET", "/jobs").status_code == 200
    assert coordinator.ask(old.key, "POST", f"/keys/{old.id}/rotate").status_code == 403, "it ends"
    assert coordinator.ask(new["key"], "DELETE", f"/keys/{old.id}").status_code == 204
    for key in (old.key, new["key"]):
        assert coordinator.ask(key, "GET", "/jobs").status_code == 401, "revoking ends both"
    too_long = {"grace_minutes": 8 * 1440}
    assert coordinator.ask(new["key"], "POST", f"/keys/{old.id}/rotate", params=too_long).status_code == 401


def test_only_the_key_itself_or_an_admin_rotates_it(coordinator: Coordinator) -> None:
    admin, key = coordinator.new_key(), coordinator.new_key("ada", Scope.READ)
    sibling = coordinator.new_key("ada", Scope.READ, Scope.SUBMIT)
    refused = coordinator.ask(sibling.key, "POST", f"/keys/{key.id}/rotate")
    assert refused.status_code == 403
    assert "only an admin can rotate another key" in refused.json()["detail"]
    coordinator.ask(key.key, "POST", "/session")
    assert coordinator.http.post(f"/keys/{key.id}/rotate").status_code == 403, "nor a browser it let in"
    coordinator.http.cookies.clear()
    coordinator.ask(sibling.key, "DELETE", f"/keys/{key.id}")
    for who in (admin.key, sibling.key):
        again = coordinator.ask(who, "POST", f"/keys/{key.id}/rotate")
        assert again.status_code == (409 if who == admin.key else 403)
    assert coordinator.ask(key.key, "GET", "/jobs").status_code == 401


def test_nobody_gets_more_by_rotating_than_they_came_with(coordinator: Coordinator) -> None:
    strong, weak = coordinator.new_key(), coordinator.new_key("ada", Scope.READ)
    for method, path in (("POST", f"/keys/{strong.id}/rotate"), ("DELETE", f"/keys/{strong.id}")):
        answer = coordinator.ask(weak.key, method, path)
        assert answer.status_code == 403
        assert "admin" in answer.json()["detail"]
    assert coordinator.ask(strong.key, "GET", "/jobs").status_code == 200


def test_use_is_seen_in_the_list(coordinator: Coordinator) -> None:
    key = coordinator.new_key()
    coordinator.ask(key.key, "GET", "/jobs")
    assert coordinator.ask(key.key, "GET", "/keys").json()["items"][0]["last_used_at"] is not None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": ""},
        {"name": "a", "scopes": []},
        {"name": "a", "scopes": ["root"]},
        {"name": "a", "days": 0},
        {"name": "\ud800"},
        {"name": "a\0b"},
        {"name": "a", "what": 1},
    ],
)
def test_a_wish_that_makes_no_sense_is_refused(coordinator: Coordinator, body: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/json"}
    answer = coordinator.http.post("/keys", content=json.dumps(body), headers=headers)
    assert answer.status_code == 422
    assert coordinator.http.get("/jobs").status_code == 200, "and no key came of it"


def test_with_a_key_in_sql_any_host_name_will_do(coordinator: Coordinator) -> None:
    elsewhere = {"Host": "tuning.example"}
    assert coordinator.http.get("/jobs", headers=elsewhere).status_code == 403
    key = coordinator.new_key().key
    headers = elsewhere | {"Authorization": f"Bearer {key}"}
    assert coordinator.http.get("/jobs", headers=headers).status_code == 200


def test_a_browser_is_let_in_by_a_cookie_that_no_script_reads(coordinator: Coordinator) -> None:
    key = coordinator.new_key("ada", Scope.READ).key
    assert coordinator.http.get("/session").json() == {
        "owner": None,
        "scopes": [],
        "requires_key": True,
        "provider": None,
        "refusal": None,
    }
    answer = coordinator.ask(key, "POST", "/session")
    assert answer.status_code == 201
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert key not in cookie
    # The client keeps cookies, as a browser does.
    assert coordinator.http.get("/session").json() == {
        "owner": "ada",
        "scopes": ["read"],
        "requires_key": True,
        "provider": None,
        "refusal": None,
    }
    assert coordinator.http.get("/jobs").status_code == 200
    assert coordinator.http.post("/keys", json={"name": "x"}).status_code == 403
    cross = coordinator.http.delete("/session", headers={"Sec-Fetch-Site": "cross-site"})
    assert cross.status_code == 403
    assert coordinator.http.delete("/session").status_code == 204
    assert coordinator.http.get("/jobs").status_code == 401


def test_a_sign_in_ends_with_its_key(coordinator: Coordinator) -> None:
    key = coordinator.new_key()
    coordinator.ask(key.key, "POST", "/session")
    assert coordinator.http.get("/jobs").status_code == 200
    coordinator.ask(key.key, "DELETE", f"/keys/{key.id}")
    assert coordinator.http.get("/jobs").status_code == 401


def test_a_key_of_the_environment_signs_in_too(start: Start) -> None:
    guarded = start(api_keys={"ada": hash_secret("a key")})
    assert guarded.ask("a key", "POST", "/session").status_code == 201
    assert guarded.http.get("/session").json()["owner"] == "ada"
    without = start()
    without.http.cookies = guarded.http.cookies
    assert without.http.get("/jobs").status_code == 200


def test_where_no_key_is_needed_nobody_signs_in(coordinator: Coordinator) -> None:
    answer = coordinator.http.post("/session")
    assert answer.status_code == 201
    assert "Set-Cookie" not in answer.headers
    assert answer.json()["requires_key"] is False
    assert answer.json()["owner"] == "local"
