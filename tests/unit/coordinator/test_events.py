"""Server-sent events: in order, resumable, and over when the job is."""

import threading

import pytest

from mallorn.core.states import JobState
from mallorn.core.values.event import OtherEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.services.coordinator import event_stream as service
from tests.fixtures.coordinator import Coordinator, OwnedRows


def append(owned: OwnedRows, *kinds: str) -> None:
    for kind in kinds:
        event = OtherEvent(kind=kind, data={"n": kind})
        owned.write(lambda session, event=event: Events(session).append(owned.job_id, event))  # type: ignore[misc]


def end(owned: OwnedRows) -> None:
    with owned.database.transaction() as session:
        Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], JobState.DONE)
        Events(session).append(owned.job_id, OtherEvent(kind="state", data={"state": "done"}))


def ids(text: str) -> list[int]:
    return [int(line.removeprefix("id: ")) for line in text.splitlines() if line.startswith("id: ")]


def test_a_stream_of_an_ended_job_tells_all_and_ends(coordinator: Coordinator, owned: OwnedRows) -> None:
    append(owned, "imported", "round")
    end(owned)
    answer = coordinator.http.get(f"/jobs/{owned.job_id}/events")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert answer.text == (
        'id: 1\nevent: imported\ndata: {"kind": "imported", "n": "imported"}\n\n'
        'id: 2\nevent: round\ndata: {"kind": "round", "n": "round"}\n\n'
        'id: 3\nevent: state\ndata: {"kind": "state", "state": "done"}\n\n'
    )


def test_a_stream_resumes_behind_the_last_event_that_was_seen(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    append(owned, "one", "two")
    end(owned)
    path = f"/jobs/{owned.job_id}/events"
    assert ids(coordinator.http.get(path, headers={"Last-Event-ID": "2"}).text) == [3]
    assert ids(coordinator.http.get(path, params={"after": 1}).text) == [2, 3]
    assert ids(coordinator.http.get(path, params={"after": 3}).text) == []


def test_a_stream_waits_for_what_is_still_to_happen(
    coordinator: Coordinator, owned: OwnedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(owned, "one")
    ending = threading.Thread(target=end, args=(owned,))
    with coordinator.http.stream("GET", f"/jobs/{owned.job_id}/events") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "id: 1"
        ending.start()
        assert ids("\n".join(lines)) == [2]
    ending.join()


def test_more_events_than_a_batch_arrive_in_order(
    coordinator: Coordinator, owned: OwnedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BATCH", 2)
    append(owned, *"abcd")
    end(owned)
    assert ids(coordinator.http.get(f"/jobs/{owned.job_id}/events").text) == [1, 2, 3, 4, 5]


def test_a_silent_stream_beats(
    coordinator: Coordinator, owned: OwnedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "HEARTBEAT_SEC", 0.01)
    with coordinator.http.stream("GET", f"/jobs/{owned.job_id}/events") as answer:
        assert next(answer.iter_lines()).startswith(":")
        end(owned)


def test_an_event_id_must_be_a_number(coordinator: Coordinator, owned: OwnedRows) -> None:
    path = f"/jobs/{owned.job_id}/events"
    for value in ("x", "-1", str(2**40)):
        assert coordinator.http.get(path, headers={"Last-Event-ID": value}).status_code == 422


def test_a_missing_job_is_a_404_and_no_stream(coordinator: Coordinator) -> None:
    assert coordinator.http.get("/jobs/nope/events").json()["hint"] == "mallorn jobs"


def test_a_coordinator_that_stops_ends_its_streams(coordinator: Coordinator, owned: OwnedRows) -> None:
    append(owned, "one")
    coordinator.parts.stopping.set()
    assert ids(coordinator.http.get(f"/jobs/{owned.job_id}/events").text) == [1]
