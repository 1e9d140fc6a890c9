"""Pausing, resuming and cancelling: what changes, who is woken, what is refused in which words."""

from httpx import Response

from mallorn.client.http_connection import parse_events
from mallorn.core import queues
from mallorn.core.states import JobState, WorkKind
from mallorn.core.targets import NATIVE
from mallorn.core.values.event import BenchStartedEvent
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import Leases, WorkItem
from tests.fixtures.coordinator import IMPORTERS, NATIVES, Coordinator, OwnedRows
from tests.fixtures.stored import open_rounds


def move(owned: OwnedRows, state: JobState) -> None:
    owned.write(lambda session: Jobs(session).move_to_state(owned.job_id, list(JobState), state))


def test_a_tuning_job_pauses_and_goes_on_with_planning(coordinator: Coordinator, owned: OwnedRows) -> None:
    paused = coordinator.http.post(f"/jobs/{owned.job_id}/pause").json()
    assert (paused["state"], paused["waiting_because"]) == ("paused", "paused by its owner")
    resumed = coordinator.http.post(f"/jobs/{owned.job_id}/resume", json={"trials": 16}).json()
    assert (resumed["state"], resumed["trials"]) == ("tuning", 64 + 16)
    assert coordinator.sent(queues.CONTROL) == [(queues.PLAN, [owned.job_id])]


def test_a_job_paused_before_its_import_goes_on_with_it(coordinator: Coordinator) -> None:
    job_id = coordinator.submit().json()["id"]
    coordinator.sent(IMPORTERS)
    coordinator.http.post(f"/jobs/{job_id}/pause")
    assert coordinator.http.post(f"/jobs/{job_id}/resume").json()["state"] == "queued"
    assert coordinator.sent(IMPORTERS) == [(queues.WORK, [queues.IMPORT])]


def test_a_finish_is_paused_and_begun_again(coordinator: Coordinator, owned: OwnedRows) -> None:
    move(owned, JobState.FINISHING)
    hold = owned.write(
        lambda session: WorkItems(session).claim(WorkItem(WorkKind.FINISH, owned.job_id), "w", 60)
    )
    assert hold is not None
    assert coordinator.http.post(f"/jobs/{owned.job_id}/pause").json()["state"] == "paused"
    assert not owned.write(lambda session: Leases(session).renew(hold, 60))
    resumed = coordinator.http.post(f"/jobs/{owned.job_id}/resume").json()
    assert (resumed["state"], resumed["trials"]) == ("finishing", 64)
    assert coordinator.sent(NATIVES) == [(queues.WORK, [NATIVE])]


def test_more_trials_take_a_job_that_rests_in_its_finish_back_to_tuning(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    move(owned, JobState.FINISHING)
    coordinator.http.post(f"/jobs/{owned.job_id}/pause")
    resumed = coordinator.http.post(f"/jobs/{owned.job_id}/resume", json={"trials": 10}).json()
    assert (resumed["state"], resumed["trials"]) == ("tuning", 74)


def test_a_done_job_goes_on_with_more_trials(coordinator: Coordinator, owned: OwnedRows) -> None:
    move(owned, JobState.DONE)
    refused = coordinator.http.post(f"/jobs/{owned.job_id}/resume")
    assert refused.status_code == 409
    assert refused.json()["hint"] == f"mallorn resume {owned.job_id} --trials 100"
    resumed = coordinator.http.post(f"/jobs/{owned.job_id}/resume", json={"trials": 100}).json()
    assert (resumed["state"], resumed["trials"], resumed["finished_at"]) == ("tuning", 164, None)
    assert coordinator.sent(queues.CONTROL) == [(queues.PLAN, [owned.job_id])]


def test_a_done_job_goes_on_by_itself_until_that_is_not_worth_it(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    def resume(**asked: object) -> Response:
        return coordinator.http.post(f"/jobs/{owned.job_id}/resume", json=asked)

    move(owned, JobState.DONE)
    resumed = resume(auto=True).json()
    assert (resumed["state"], resumed["trials"], resumed["minutes"]) == ("tuning", None, None)
    owned.write(
        lambda session: Jobs(session).store_report_columns(owned.job_id, tuning_ended="nothing is left")
    )
    move(owned, JobState.DONE)
    refused = resume(auto=True)
    assert refused.status_code == 409
    assert refused.json()["detail"] == f"job {owned.job_id} ended by itself: nothing is left"
    assert refused.json()["hint"] == f"mallorn resume {owned.job_id} --trials 100"
    assert resume(auto=True, trials=5).status_code == 422
    assert resume(trials=5).json()["trials"] == 5


def test_a_job_that_failed_in_its_finish_goes_to_the_finish_again(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    move(owned, JobState.FINISHING)
    move(owned, JobState.FAILED)
    resumed = coordinator.http.post(f"/jobs/{owned.job_id}/resume").json()
    assert (resumed["state"], resumed["trials"]) == ("finishing", 64)
    assert coordinator.sent(NATIVES) == [(queues.WORK, [NATIVE])]


def test_a_done_job_goes_on_with_what_its_finish_left_out(coordinator: Coordinator, owned: OwnedRows) -> None:
    move(owned, JobState.DONE)
    left = {"skipped_steps": [{"step": "time the whole model", "reason": "it died", "hint": ""}]}
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, report=left))
    assert coordinator.http.post(f"/jobs/{owned.job_id}/resume").json()["state"] == "finishing"


def test_cancelling_ends_the_open_rounds_too(coordinator: Coordinator, owned: OwnedRows) -> None:
    _, hold = owned.claimed_round("w0")
    cancelled = coordinator.http.post(f"/jobs/{owned.job_id}/cancel").json()
    assert cancelled["state"] == "cancelled"
    assert cancelled["finished_at"] is not None
    assert owned.read(lambda session: open_rounds(session, owned.job_id)) == []
    hold = hold
    assert not owned.write(lambda session: Leases(session).renew(hold, 60))


CONFLICTS = [
    (JobState.TUNING, "resume", "is not paused but tuning"),
    (JobState.FAILED, "resume", "has ended: failed"),
    (JobState.CANCELLED, "resume", "has ended: cancelled"),
    (JobState.DONE, "pause", "is done"),
    (JobState.DONE, "cancel", "is done"),
]


def test_what_the_state_does_not_allow_is_a_conflict_in_words(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    for state, verb, said in CONFLICTS:
        move(owned, state)
        answer = coordinator.http.post(f"/jobs/{owned.job_id}/{verb}")
        assert answer.status_code == 409, (state, verb)
        assert said in answer.json()["detail"], (state, verb)
        assert owned.job_id in answer.json()["detail"], (state, verb)


def test_a_job_that_measures_no_candidates_takes_none_on_resume_either(coordinator: Coordinator) -> None:
    job_id = coordinator.submit(trials=None, options={"mode": "zero-shot"}).json()["id"]
    with coordinator.database.transaction() as session:
        Jobs(session).move_to_state(job_id, list(JobState), JobState.DONE)
    for asked in ({}, {"trials": 100}, {"auto": True}):
        refused = coordinator.http.post(f"/jobs/{job_id}/resume", json=asked)
        assert refused.status_code == 409
        assert refused.json()["detail"] == f"job {job_id} is zero-shot: it measures no candidates"
        assert refused.json()["hint"].startswith("mallorn tune MODEL")


def test_a_refused_resume_changes_nothing(coordinator: Coordinator, owned: OwnedRows) -> None:
    coordinator.http.post(f"/jobs/{owned.job_id}/resume", json={"trials": 5})
    assert coordinator.http.get(f"/jobs/{owned.job_id}").json()["trials"] == 64
    assert coordinator.http.post(f"/jobs/{owned.job_id}/resume", json={"trials": -1}).status_code == 422


def test_everything_an_owner_does_is_an_event(coordinator: Coordinator) -> None:
    job_id = coordinator.submit().json()["id"]
    for verb in ("pause", "resume", "cancel"):
        coordinator.http.post(f"/jobs/{job_id}/{verb}")
    found = list(parse_events(coordinator.http.get(f"/jobs/{job_id}/events").text.splitlines()))
    assert [(number, kind) for number, kind, _ in found] == [
        (1, "submitted"),
        (2, "paused"),
        (3, "resumed"),
        (4, "cancelled"),
    ]
    assert found[2][2] == {"state": "queued", "trials": 8}


def test_a_done_job_returns_to_its_finish_to_be_timed_again(
    coordinator: Coordinator, owned: OwnedRows
) -> None:
    job_id = owned.job_id
    assert coordinator.http.post(f"/jobs/{job_id}/bench").status_code == 409  # no export
    owned.write(lambda session: Jobs(session).store_report_columns(job_id, export_uri="file:///x"))
    assert coordinator.http.post(f"/jobs/{job_id}/bench").status_code == 409  # not done
    owned.write(lambda session: Jobs(session).move_to_state(job_id, list(JobState), JobState.DONE))
    answer = coordinator.http.post(f"/jobs/{job_id}/bench").json()
    assert (answer["state"], answer["finished_at"]) == ("finishing", None)
    assert coordinator.sent(NATIVES)[-1] == (queues.WORK, [NATIVE])
    event = owned.read(lambda session: Events(session).newest(job_id, BenchStartedEvent))
    assert event is not None
