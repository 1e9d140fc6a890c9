"""What is more than an owner may have is refused, whoever else asks at the same time."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from mallorn.core.api_keys import hash_secret
from mallorn.core.states import JobState
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.targets import Targets
from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.database import BOTH

ADA, BOB = ({"Authorization": f"Bearer {name}"} for name in ("ada", "bob"))
KEYS = {name: hash_secret(name) for name in ("ada", "bob")}


def submit(coordinator: Coordinator, owner: dict[str, str] = ADA, **changes: object) -> httpx.Response:
    model = coordinator.http.put("/models", content=b"a model", headers=owner).json()["id"]
    return coordinator.submit(owner, model_id=model, **changes)


def end(coordinator: Coordinator, job_id: str) -> None:
    with coordinator.database.transaction() as session:
        Jobs(session).move_to_state(job_id, list(JobState), JobState.DONE)


def refused(answer: httpx.Response, *words: str) -> None:
    assert answer.status_code == 429, answer.text
    assert answer.json()["error"] == "TooMany"
    assert all(word in answer.json()["detail"] for word in words), answer.text
    assert int(answer.headers["Retry-After"]) > 0


@BOTH
def test_an_owners_jobs_name_a_limited_number_of_targets(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_targets=2)

    def submit_for(cores: int, headers: dict[str, str] = ADA) -> httpx.Response:
        target = {"kind": "llvm", "num-cores": cores}
        return submit(guarded, headers, target=target)

    first, _ = (submit_for(cores).json()["id"] for cores in (1, 2))
    end(guarded, first)
    assert guarded.http.delete(f"/jobs/{first}", headers=ADA).status_code == 204, "its target stays"
    refused(submit_for(3), "2 targets")
    assert submit_for(2).status_code == 201
    assert submit_for(3, BOB).status_code == 201, "another owner's are another's"
    with guarded.database.session() as session:
        assert len(Targets(session).list()) == 3, "a refused job leaves no target"


@BOTH
def test_an_owner_has_so_many_jobs_at_a_time(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_jobs=2)
    first, second = (submit(guarded).json()["id"] for _ in range(2))
    refused(submit(guarded), "2 active jobs", "3")
    assert submit(guarded, BOB).status_code == 201, "another owner's are another's"
    end(guarded, first)
    third = submit(guarded)
    assert third.status_code == 201
    guarded.http.post(f"/jobs/{second}/pause", headers=ADA)
    assert submit(guarded).status_code == 201, "a paused job is not under way"
    refused(guarded.http.post(f"/jobs/{second}/resume", headers=ADA), "2 active jobs")
    assert guarded.http.get(f"/jobs/{second}", headers=ADA).json()["state"] == "paused"


@BOTH
def test_what_is_refused_leaves_nothing(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_jobs=1)
    submit(guarded)
    refused(submit(guarded))
    assert len(guarded.http.get("/jobs", headers=ADA).json()["items"]) == 1


def test_a_submit_that_is_sent_again_is_no_second_job(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_jobs=1)
    again = {**ADA, "Idempotency-Key": "one"}
    assert submit(guarded, again).status_code == 201
    assert submit(guarded, again).status_code == 200
    refused(submit(guarded))


def test_trials_ahead_are_counted_together(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_trials=100)
    job_id = submit(guarded, trials=60).json()["id"]
    refused(submit(guarded, trials=41), "100 pending trials", "101")
    assert submit(guarded, trials=40).status_code == 201
    end(guarded, job_id)
    refused(
        guarded.http.post(f"/jobs/{job_id}/resume", headers=ADA, json={"trials": 70}), "100 pending trials"
    )


@BOTH
def test_two_at_once_do_not_slip_through_together(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_jobs=1)
    model = guarded.http.put("/models", content=b"a model", headers=ADA).json()["id"]
    for _ in range(5):
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: guarded.submit(ADA, model_id=model), range(8)))
        made = [answer.json()["id"] for answer in answers if answer.status_code == 201]
        assert len(made) == 1, [answer.status_code for answer in answers]
        assert {answer.status_code for answer in answers} == {201, 429}
        end(guarded, made[0])


@BOTH
def test_models_take_so_many_bytes(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_model_bytes=10)
    for _ in range(2):
        assert guarded.http.put("/models", content=b"12345678", headers=ADA).status_code == 200
    refused(guarded.http.put("/models", content=b"123", headers=ADA), "10 bytes", "11")
    assert len(guarded.http.get("/models", headers=ADA).json()["items"]) == 1
    assert len([file for file in guarded.artifacts.rglob("*") if file.is_file()]) == 1
    assert guarded.http.put("/models", content=b"123", headers=BOB).status_code == 200


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_key_makes_so_many_requests_a_minute(start: Start) -> None:
    guarded = start(api_keys=KEYS, quota_requests=3)
    assert [guarded.http.get("/jobs", headers=ADA).status_code for _ in range(4)] == [200, 200, 200, 429]
    refused(guarded.http.get("/jobs", headers=ADA), "3 requests a minute")
    assert guarded.http.get("/jobs", headers=BOB).status_code == 200
    assert guarded.http.get(f"{guarded.url}/healthz").status_code == 200
