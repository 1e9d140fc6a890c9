"""Archiving and deleting over HTTP: what is refused in which words, and which files go."""

import hashlib
from pathlib import Path

from mallorn import Client
from mallorn.core.states import JobState
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.jobs import Jobs
from mallorn.services.artifact_removal import remove_export
from tests.fixtures.coordinator import Coordinator, OwnedRows, Start

KEYS = {owner: hashlib.sha256(f"{owner}-key".encode()).hexdigest() for owner in ("ada", "bob")}


def end(coordinator: Coordinator, job_id: str, export: Path | None = None) -> None:
    with coordinator.database.transaction() as session:
        Jobs(session).move_to_state(job_id, list(JobState), JobState.DONE)
        if export is not None:
            Jobs(session).store_report_columns(job_id, export_uri=str(export))


def export_of(coordinator: Coordinator, job_id: str) -> Path:
    directory = coordinator.artifacts / "exports" / job_id / "target"
    directory.mkdir(parents=True)
    (directory / "database_workload.json").write_text("{}")
    return directory


def stored(coordinator: Coordinator) -> list[str]:
    return [path.name for path in coordinator.artifacts.rglob("*") if path.is_file()]


def test_a_job_is_archived_and_comes_back(coordinator: Coordinator, owned: OwnedRows) -> None:
    end(coordinator, owned.job_id)
    with Client(coordinator.url) as client:
        job = client.job(owned.job_id)
        assert job.archive().archived
        assert [found.id for found in client.jobs()] == []
        assert [found.id for found in client.jobs(archived=True)] == [job.id]
        assert not job.unarchive().archived
        assert [found.id for found in client.jobs()] == [job.id]


def test_a_deleted_job_is_gone_with_its_files(coordinator: Coordinator) -> None:
    job_id = coordinator.submit().json()["id"]
    end(coordinator, job_id, export_of(coordinator, job_id))
    assert coordinator.http.delete(f"/jobs/{job_id}").status_code == 204
    assert coordinator.http.get("/jobs").json()["items"] == []
    for path in ("", "/tasks", "/rounds", "/events", "/schedules"):
        assert coordinator.http.get(f"/jobs/{job_id}{path}").status_code == 404, path
    assert coordinator.http.delete(f"/jobs/{job_id}").status_code == 404
    assert not (coordinator.artifacts / "exports" / job_id).exists()
    assert len(stored(coordinator)) == 1, "the model"


def test_a_job_whose_files_are_gone_already_is_deleted(coordinator: Coordinator, owned: OwnedRows) -> None:
    end(coordinator, owned.job_id, coordinator.artifacts / "exports" / owned.job_id / "nowhere")
    assert coordinator.http.delete(f"/jobs/{owned.job_id}").status_code == 204


def test_an_export_goes_and_its_job_stays(coordinator: Coordinator, owned: OwnedRows) -> None:
    end(coordinator, owned.job_id, export_of(coordinator, owned.job_id))
    with Client(coordinator.url) as client:
        job = client.job(owned.job_id)
        assert job.status.exported
        gone = job.delete_export()
        assert not gone.exported
        assert gone.export_deleted_at is not None
        assert job.refresh() == gone
    assert not (coordinator.artifacts / "exports" / owned.job_id).exists()
    refused = coordinator.http.get(f"/jobs/{owned.job_id}/schedules")
    assert refused.status_code == 409
    assert "were deleted" in refused.json()["detail"]
    assert coordinator.http.delete(f"/jobs/{owned.job_id}/export").status_code == 409


def test_an_export_that_was_made_since_stays(coordinator: Coordinator, owned: OwnedRows) -> None:
    end(coordinator, owned.job_id, export_of(coordinator, owned.job_id))
    owned.write(lambda session: Removals(session).delete_export(owned.job_id, None))
    fresh = {"export_uri": "anew", "export_deleted_at": None}
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, **fresh))
    remove_export(coordinator.database, owned.job_id, str(coordinator.artifacts / "exports"))
    assert coordinator.artifacts.exists()
    assert coordinator.http.get(f"/jobs/{owned.job_id}").json()["exported"]


def test_the_export_of_a_running_job_is_not_deleted(coordinator: Coordinator, owned: OwnedRows) -> None:
    owned.write(
        lambda session: Jobs(session).store_report_columns(owned.job_id, export_uri="of an earlier end")
    )
    answer = coordinator.http.delete(f"/jobs/{owned.job_id}/export")
    assert answer.status_code == 409
    assert answer.json()["hint"] == f"mallorn jobs cancel {owned.job_id}"


def test_it_is_told_what_is_kept_for_how_long(start: Start) -> None:
    told = start(keep_jobs_days=90, keep_audit_days=0.5, keep_backups=2).http.get("/retention").json()
    assert told == {
        "keep_jobs_days": 90,
        "keep_events_days": 0,
        "keep_models_days": 0,
        "keep_audit_days": 0.5,
        "keep_audit_entries": 1_000_000,
        "keep_backups": 2,
    }


def test_a_running_job_is_not_deleted_and_says_how_to_end_it(coordinator: Coordinator) -> None:
    job_id = coordinator.submit().json()["id"]
    answer = coordinator.http.delete(f"/jobs/{job_id}")
    assert answer.status_code == 409
    assert answer.json()["detail"] == f"job {job_id} is queued; only a job that has ended is deleted"
    assert answer.json()["hint"] == f"mallorn jobs cancel {job_id}"
    assert coordinator.http.post(f"/jobs/{job_id}/archive").status_code == 409
    coordinator.http.post(f"/jobs/{job_id}/cancel")
    assert coordinator.http.delete(f"/jobs/{job_id}").status_code == 204


def test_a_model_goes_after_its_jobs_and_can_come_again(coordinator: Coordinator) -> None:
    job = coordinator.submit().json()
    refused = coordinator.http.delete(f"/models/{job['model_id']}")
    assert refused.status_code == 409
    assert job["id"] in refused.json()["detail"]
    end(coordinator, job["id"])
    coordinator.http.delete(f"/jobs/{job['id']}")
    with Client(coordinator.url) as client:
        client.delete_model(job["model_id"])
        assert list(client.models()) == []
    assert stored(coordinator) == []
    assert coordinator.http.delete(f"/models/{job['model_id']}").status_code == 404
    assert coordinator.upload() == job["model_id"]
    assert stored(coordinator) == [job["model_id"]]


def test_another_owner_keeps_the_bytes_and_may_delete_nothing(start: Start) -> None:
    ada, bob = (start(api_keys=KEYS) for _ in range(2))
    ada.http.headers["Authorization"] = "Bearer ada-key"
    bob.http.headers["Authorization"] = "Bearer bob-key"
    model_id = ada.upload()
    job_id = ada.submit(model_id=model_id).json()["id"]
    end(ada, job_id)
    assert bob.http.delete(f"/jobs/{job_id}").status_code == 404
    assert bob.http.post(f"/jobs/{job_id}/archive").status_code == 404
    assert bob.http.delete(f"/models/{model_id}").status_code == 404
    assert bob.upload() == model_id
    assert bob.http.delete(f"/models/{model_id}").status_code == 204
    assert stored(ada) == [model_id]
