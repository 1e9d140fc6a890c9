"""The Python client against a running coordinator."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from mallorn import Client
from mallorn.core.address_checks import free_port
from mallorn.core.errors import InvalidRequest, TooLarge
from mallorn.core.settings import Settings
from mallorn.core.states import JobState
from mallorn.core.values.event import OtherEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.session import Database
from tests.fixtures.coordinator import Coordinator, OwnedRows, Start, running
from tests.fixtures.models import onnx_bytes
from tests.fixtures.waiting import PATIENCE

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
TARGET = {"kind": "llvm", "num-cores": 2}


@pytest.fixture
def client(coordinator: Coordinator) -> Iterator[Client]:
    with Client(coordinator.url) as opened:
        yield opened


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(onnx_bytes(size_bytes=3_000_000))
    return file


def test_an_upload_reports_its_progress(client: Client, model: Path) -> None:
    seen: list[tuple[int, int]] = []
    answer = client.upload(model, lambda sent, total: seen.append((sent, total)))
    assert answer.id == hashlib.sha256(model.read_bytes()).hexdigest()
    assert answer.name == "model.onnx"
    size_bytes = model.stat().st_size
    assert seen == [(1 << 20, size_bytes), (2 << 20, size_bytes), (size_bytes, size_bytes)]


def test_a_model_that_is_too_large_is_explained(start: Start, model: Path) -> None:
    said = pytest.raises(TooLarge, match="larger than 1000 bytes")
    with Client(start(max_model_bytes=1000).url) as client, said:
        client.upload(model)


def test_submit_uploads_and_submits(client: Client, model: Path) -> None:
    job = client.submit(model, TARGET, trials=3, seed=1, name="mine", search="random", round_size=2)
    assert (job.state, job.status.name, job.status.trials) == (JobState.QUEUED, "mine", 3)
    assert (job.status.options.search, job.status.options.round_size) == ("random", 2)
    again = client.submit(job.status.model_id, TARGET)
    assert [found.id for found in client.jobs()] == [again.id, job.id]
    assert client.job(job.id).progress().trials == 0
    assert (job.tasks(), list(job.rounds())) == ([], [])
    assert [found.name for found in client.models()] == ["model.onnx"]


def test_an_option_that_is_not_there_is_explained(client: Client, model: Path) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.submit(model, TARGET, serach="random")
    assert "search" in caught.value.hint


def test_a_job_is_steered(client: Client, owned: OwnedRows) -> None:
    job = client.job(owned.job_id)
    assert job.pause().state == "paused"
    assert job.resume(trials=6).trials == 70
    job.pause()
    assert job.resume(auto=True).has_auto_budget
    assert job.cancel().state == "cancelled"


def test_a_job_is_waited_for_while_its_coordinator_restarts(database: Database, tmp_path: Path) -> None:
    rows = OwnedRows(database)
    settings = Settings(data_dir=tmp_path, database_url=database.url, redis_url="memory://")
    met, port = Event(), free_port()
    with Client(f"http://127.0.0.1:{port}") as client, ThreadPoolExecutor(1) as beside:
        with running(settings, port):
            job = client.job(rows.job_id)
            waiting = beside.submit(job.wait, PATIENCE, lambda _status: met.set())
            assert met.wait(PATIENCE)
        rows.write(lambda session: Jobs(session).move_to_state(rows.job_id, [JobState.TUNING], JobState.DONE))
        with running(settings, port):
            assert waiting.result().status.state is JobState.DONE


def test_events_are_iterated_to_the_jobs_last(client: Client, owned: OwnedRows) -> None:
    with owned.database.transaction() as session:
        Events(session).append(owned.job_id, OtherEvent(kind="round", data={"index": 0}))
        Jobs(session).move_to_state(owned.job_id, [JobState.TUNING], JobState.DONE)
    (seen,) = client.job(owned.job_id).events()
    assert (seen.id, seen.kind, seen.payload) == (1, "round", {"index": 0})


def test_schedules_of_a_job_are_downloaded(
    client: Client, coordinator: Coordinator, owned: OwnedRows, tmp_path: Path
) -> None:
    directory = coordinator.artifacts / "exports" / "x"
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    owned.write(lambda session: Jobs(session).store_report_columns(owned.job_id, export_uri=str(directory)))
    assert (client.job(owned.job_id).schedules(tmp_path / "out") / "manifest.json").read_text() == "{}"


def test_the_fleet_and_the_dataset_may_be_empty(client: Client) -> None:
    assert (client.devices(), client.workers(), list(client.schedules(target=TARGET))) == ([], [], [])
    assert list(client.records(target=TARGET)) == []
