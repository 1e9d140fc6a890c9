"""Keys, owners, and what a browser may not do."""

import hashlib

import pytest

from tests.fixtures.coordinator import Coordinator, OwnedRows, Start

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
KEYS = {"ada": "ada's key", "bob": "bob's key"}
HASHES = {name: hashlib.sha256(key.encode()).hexdigest() for name, key in KEYS.items()}


def as_owner(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[name]}"}


@pytest.fixture
def guarded(start: Start) -> Coordinator:
    """A coordinator that knows two keys."""
    return start(api_keys=HASHES)


def test_a_wrong_key_is_refused(guarded: Coordinator) -> None:
    for header in ("Bearer wrong", f"Bearer {HASHES['ada']}", f"Basic {KEYS['ada']}", "Bearer"):
        answer = guarded.http.get("/jobs", headers={"Authorization": header})
        assert answer.status_code == 401, header


def test_an_owner_is_the_name_of_the_key(guarded: Coordinator) -> None:
    job_id = OwnedRows(guarded.database, "ada").job_id
    path = f"/jobs/{job_id}"
    assert guarded.http.get(path, headers=as_owner("ada")).status_code == 200
    # Keys of the environment are admins': they see that there is a job, and not what is in it.
    assert guarded.http.get(f"{path}/rounds", headers=as_owner("bob")).status_code == 404
    assert guarded.http.get("/jobs", headers=as_owner("bob")).json()["items"] == []
    assert len(guarded.http.get("/models", headers=as_owner("ada")).json()["items"]) == 1
    assert guarded.http.get("/models", headers=as_owner("bob")).json()["items"] == []


def test_two_owners_may_use_the_same_idempotency_key(guarded: Coordinator) -> None:
    found = set()
    for name in KEYS:
        model_id = guarded.http.put("/models", content=b"same", headers=as_owner(name)).json()["id"]
        headers = {**as_owner(name), "Idempotency-Key": "one"}
        answer = guarded.submit(headers, model_id=model_id)
        assert answer.status_code == 201
        found.add(answer.json()["id"])
    assert len(found) == 2


def test_a_foreign_host_name_is_refused_without_keys(coordinator: Coordinator) -> None:
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "["):
        answer = coordinator.http.get("/jobs", headers={"Host": host})
        assert answer.status_code == 403, host
        assert answer.json()["error"] == "Forbidden"
    for host in ("localhost:1", "127.0.0.1", "[::1]:8000"):
        assert coordinator.http.get("/jobs", headers={"Host": host}).status_code == 200, host


def test_with_keys_any_host_name_will_do(guarded: Coordinator) -> None:
    headers = {**as_owner("ada"), "Host": "tuning.example"}
    assert guarded.http.get("/jobs", headers=headers).status_code == 200


def test_another_web_page_changes_nothing(coordinator: Coordinator) -> None:
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
    ):
        answer = coordinator.http.put("/models", content=b"x", headers=headers)
        assert answer.status_code == 403, headers
    assert coordinator.http.get("/models").json()["items"] == []


def test_our_own_page_may_change_things(coordinator: Coordinator) -> None:
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": coordinator.url}):
        assert coordinator.http.put("/models", content=b"x", headers=headers).status_code == 200


def test_every_answer_carries_the_security_headers(coordinator: Coordinator) -> None:
    for path in ("/jobs", "/jobs/nope", "/nowhere"):
        headers = coordinator.http.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
    docs = coordinator.http.get(coordinator.url + "/docs").headers
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in docs["Content-Security-Policy"]
