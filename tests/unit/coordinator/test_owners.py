"""An owner who leaves: put out whole by one request, and erased by another."""

from typing import Any

import pytest
from sqlalchemy import text, update

from mallorn.core.api_keys import USUAL_SCOPES, Scope, hash_page_secret, hash_secret
from mallorn.core.errors import Conflict
from mallorn.core.states import JobState, RoundState
from mallorn.db.repositories.access_control import SignIns
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables import Base, Job, Round, SessionRow
from mallorn.services.coordinator.web import authenticator
from mallorn.services.coordinator.web.authenticator import Credentials
from tests.fixtures.coordinator import PAGE, Coordinator, OwnedRows, Start
from tests.fixtures.rows import MODEL

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ADA = "ada@example.org"


def hers(coordinator: Coordinator) -> str:
    """A key of Ada's, who is no admin."""
    return coordinator.new_key(ADA, *USUAL_SCOPES).key


def treat(coordinator: Coordinator, admin: str, deed: str, owner: str = ADA) -> Any:
    answer = coordinator.ask(admin, "POST", f"/owners/{deed}", json={"owner": owner})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_who_is_put_out_is_out_with_keys_browsers_and_jobs(coordinator: Coordinator) -> None:
    admin, key = coordinator.new_key("root", Scope.ADMIN).key, hers(coordinator)
    coordinator.ask(key, "POST", "/session")
    rows = OwnedRows(coordinator.database, ADA)
    round_id, _ = rows.claimed_round("w0")
    his = rows.write(lambda session: rows.add_job(session, "bob", ("w0",)))
    assert treat(coordinator, admin, "ban")["banned_at"] is not None
    assert "was revoked" in coordinator.ask(key, "GET", "/jobs").json()["detail"]
    assert coordinator.http.get("/jobs").status_code == 401, "the cookie opens nothing"
    shown = coordinator.ask(admin, "GET", f"/jobs/{rows.job_id}").json()
    assert (shown["state"], shown["ended_because"]) == ("cancelled", "cancelled as its owner was banned")
    state = rows.read(lambda session: session.get_one(Round, round_id).state)
    assert state == RoundState.CANCELLED
    assert rows.read(lambda session: Jobs(session).get(his, "bob").state) not in (JobState.CANCELLED,)
    refused = coordinator.ask(admin, "POST", "/keys", json={"name": "again", "owner": ADA})
    assert refused.status_code == 409
    assert "mallorn owners readmit" in refused.json()["hint"]


def test_who_is_let_in_again_needs_new_keys(coordinator: Coordinator) -> None:
    admin, old = coordinator.new_key("root", Scope.ADMIN).key, hers(coordinator)
    treat(coordinator, admin, "ban")
    listed = coordinator.ask(admin, "GET", "/owners").json()["items"]
    assert {each["owner"]: each["banned_at"] is not None for each in listed} == {ADA: True, "root": False}
    assert treat(coordinator, admin, "readmit")["banned_at"] is None
    assert coordinator.ask(old, "GET", "/jobs").status_code == 401
    assert coordinator.ask(hers(coordinator), "GET", "/jobs").status_code == 200


def test_signing_out_ends_browsers_and_no_keys(coordinator: Coordinator) -> None:
    admin, key = coordinator.new_key("root", Scope.ADMIN).key, hers(coordinator)
    coordinator.ask(key, "POST", "/session")
    treat(coordinator, admin, "sign-out")
    assert coordinator.http.get("/jobs").status_code == 401
    assert coordinator.ask(key, "GET", "/jobs").status_code == 200


def test_a_key_of_the_environment_opens_nothing_to_who_is_put_out(start: Start) -> None:
    guarded = start(api_keys={ADA: hash_secret("hers"), "root": hash_secret("a key")})
    assert guarded.ask("hers", "GET", "/jobs").status_code == 200
    treat(guarded, "a key", "ban")
    answer = guarded.ask("hers", "GET", "/jobs")
    assert (answer.status_code, answer.json()["detail"]) == (401, f"{ADA} is banned from this service")
    assert "mallorn owners readmit" in answer.json()["hint"]


def test_a_sign_in_that_was_under_way_opens_nothing_either(coordinator: Coordinator) -> None:
    admin = coordinator.new_key("root", Scope.ADMIN).key
    treat(coordinator, admin, "ban")
    row = SessionRow(owner=ADA, scopes=list(USUAL_SCOPES), page_digest=hash_page_secret(PAGE))
    with coordinator.database.transaction() as session:  # it had looked before
        cookie = SignIns(session).create_session(row, 60)
    coordinator.http.cookies.set(f"mallorn_session_{coordinator.url.rpartition(':')[2]}", cookie)
    assert coordinator.http.get("/jobs").status_code == 401


def test_nobody_puts_themselves_out(coordinator: Coordinator) -> None:
    admin = coordinator.new_key("root", Scope.ADMIN).key
    for deed in ("ban", "erase"):
        answer = coordinator.ask(admin, "POST", f"/owners/{deed}", json={"owner": "root"})
        assert answer.status_code == Conflict.status_code
    assert coordinator.ask(admin, "GET", "/jobs").status_code == 200


def test_who_is_erased_is_named_nowhere_and_what_they_measured_stays(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, key = coordinator.new_key("root", Scope.ADMIN).key, hers(coordinator)
    rows = OwnedRows(coordinator.database, ADA)
    coordinator.ask(key, "POST", f"/jobs/{rows.job_id}/pause")
    coordinator.ask(key, "POST", "/session")
    erased = treat(coordinator, admin, "erase")["owner"]
    assert erased.startswith("erased-")
    with coordinator.database.session() as session:
        stored = [
            str(value)
            for table in Base.metadata.tables
            for row in session.execute(text(f"SELECT * FROM {table}"))
            for value in row
        ]
    assert not [value for value in stored if ADA in value]
    assert coordinator.ask(admin, "GET", f"/jobs/{rows.job_id}").json()["owner"] == erased
    assert any(entry["owner"] == erased for entry in coordinator.ask(admin, "GET", "/audit").json()["items"])
    assert coordinator.ask(admin, "POST", "/keys", json={"name": "x", "owner": ADA}).status_code == 409


def test_an_admin_lists_and_stops_everybodys_jobs(coordinator: Coordinator) -> None:
    admin, key = coordinator.new_key("root", Scope.ADMIN).key, hers(coordinator)
    rows = OwnedRows(coordinator.database, ADA)
    assert coordinator.ask(admin, "GET", "/jobs").json()["items"] == [], "one's own, unless asked for more"
    everybodys = coordinator.ask(admin, "GET", "/jobs", params={"all_owners": True}).json()["items"]
    assert [(job["id"], job["owner"], job["name"]) for job in everybodys] == [(rows.job_id, ADA, "mlp")]
    mine = rows.write(lambda session: rows.add_job(session, "root", ("w0",)))
    assert coordinator.ask(admin, "GET", f"/jobs/{mine[:8]}").json()["id"] == mine
    assert coordinator.ask(admin, "GET", f"/jobs/{rows.job_id[:8]}").status_code == 404, "by its whole id"
    refused = coordinator.ask(key, "GET", "/jobs", params={"all_owners": True})
    assert refused.status_code == 403
    paused = coordinator.ask(admin, "POST", f"/jobs/{rows.job_id}/pause").json()
    assert paused["state"] == "paused"
    assert (paused["waiting_because"], paused["cause"]) == ("paused by an admin", "owner")
    assert coordinator.ask(key, "POST", f"/jobs/{rows.job_id}/resume").json()["state"] == "tuning"
    cancelled = coordinator.ask(admin, "POST", f"/jobs/{rows.job_id}/cancel").json()
    assert (cancelled["state"], cancelled["ended_because"]) == ("cancelled", "cancelled by an admin")
    assert [event.kind for event in rows.read(lambda session: Events(session).after(rows.job_id, 0))] == [
        *("paused", "resumed", "cancelled")
    ]
    assert coordinator.ask(key, "DELETE", f"/jobs/{rows.job_id}").status_code == 204
    assert coordinator.ask(admin, "GET", f"/jobs/{rows.job_id}").status_code == 404, "as for its owner"


def test_of_a_private_job_an_admin_sees_what_it_takes_up_and_not_what_it_is(coordinator: Coordinator) -> None:
    admin, key = coordinator.new_key("root", Scope.ADMIN).key, hers(coordinator)
    rows = OwnedRows(coordinator.database, ADA)
    secret = {
        "name": "a secret",
        "ended_because": "secret words",
        "options": {"private": True, "seed_words": 1},
    }
    rows.write(lambda session: session.execute(update(Job).values(secret)))
    assert coordinator.ask(key, "GET", f"/jobs/{rows.job_id}").json()["name"] == "a secret"
    alone = coordinator.ask(admin, "GET", f"/jobs/{rows.job_id}")
    listed = coordinator.ask(admin, "GET", "/jobs", params={"all_owners": True})
    stopped = coordinator.ask(admin, "POST", f"/jobs/{rows.job_id}/pause")
    for answer, state in ((alone, "tuning"), (listed, "tuning"), (stopped, "paused")):
        assert "secret" not in answer.text
        assert MODEL not in answer.text
        told = answer.json() if "items" not in answer.json() else answer.json()["items"][0]
        assert (told["owner"], told["name"], told["state"]) == (ADA, "private", state)
        assert told["trials"] == 64


def test_a_stream_ends_with_its_key(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallorn.services.coordinator.event_stream.AGAIN_SEC", 0.0)
    monkeypatch.setattr("mallorn.services.coordinator.event_stream.POLL_SEC", 0.01)
    monkeypatch.setattr("mallorn.services.coordinator.event_stream.HEARTBEAT_SEC", 0.0)
    monkeypatch.setattr(authenticator, "AGAIN_SEC", 0.0)
    admin, key = coordinator.new_key("root", Scope.ADMIN).key, hers(coordinator)
    job_id = OwnedRows(coordinator.database, ADA).job_id
    headers = {"Authorization": f"Bearer {key}"}
    with coordinator.http.stream("GET", f"/jobs/{job_id}/events", headers=headers) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        treat(coordinator, admin, "ban")
        assert "was banned" not in "".join(lines), "it ends, and coming back is refused"
    assert coordinator.http.get(f"/jobs/{job_id}/events", headers=headers).status_code == 401


def test_streams_of_one_key_ask_the_database_once(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, asked = hers(coordinator), []
    door_of = coordinator.parts.door
    caller = type(door_of).authenticate
    monkeypatch.setattr(
        type(door_of), "authenticate", lambda self, *shown: (asked.append(shown), caller(self, *shown))[1]
    )
    assert all(door_of.is_still_valid(Credentials(key)) for _ in range(100))
    assert asked == [(Credentials(key),)]
    assert not door_of.is_still_valid(Credentials("another"))
