"""Artifacts in a store that speaks S3: a real server from a wheel, and the whole service before it."""

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from mallorn.core.address_checks import free_port
from mallorn.core.artifact_uris import open_store
from mallorn.services.coordinator.web.artifact_store import Store
from tests.fixtures.processes import answers_ok, serving
from tests.fixtures.service import JOB_SEC, start_service, stop_service

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the server answers; it keeps all in memory."""
    port = free_port()
    log = tmp_path_factory.mktemp("s3") / "log"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    url = f"http://127.0.0.1:{port}"
    with serving(command, lambda: answers_ok(f"{url}/moto-api/"), log):
        yield url


@pytest.fixture
def known(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What a process has to know of the store."""
    environ = {
        "FSSPEC_S3_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(fsspec.config.conf, "s3", {"endpoint_url": endpoint})
    return environ


@pytest.fixture
def bucket(known: dict[str, str]) -> str:
    name = f"s3://{uuid4().hex}"
    fs, path = open_store(name)
    fs.mkdir(path)
    return f"{name}/artifacts"


def test_what_another_host_stored_is_seen_at_once(bucket: str) -> None:
    store, (fs, root) = Store(bucket), open_store(bucket)
    store.remove_stale_uploads()
    with store.upload(100 << 20) as upload:
        upload.write(bytes(20 << 20))  # more than one part
        model_id = upload.close_and_hash()
        upload.move_to_final_path()
    assert store.has_model(model_id)
    assert [path.rpartition("/")[2] for path in fs.find(root)] == [model_id]
    fs.pipe_file(f"{root}/exports/a", b"a")
    assert len(b"".join(store.zip_directory(f"{bucket}/exports"))) > 0
    elsewhere = f"import fsspec; fsspec.open('{bucket}/exports/b', 'wb').open().close()"
    subprocess.run([sys.executable, "-c", elsewhere], check=True)
    with zipfile.ZipFile(BytesIO(b"".join(store.zip_directory(f"{bucket}/exports")))) as archive:
        assert archive.namelist() == ["a", "b"]


def test_a_whole_job_keeps_its_files_there(
    bucket: str, known: dict[str, str], tmp_path: Path, networks: Path
) -> None:
    service = start_service(tmp_path, MALLORN_ARTIFACTS=bucket, **known)
    try:
        job = service.client.submit(networks / "mlp.onnx", trials=8)
        assert job.wait(timeout_sec=JOB_SEC).state == "done"
        assert (job.schedules(tmp_path / "out") / "apply.py").is_file()
        (schedule, *_) = service.client.schedules()
        path = f"/schedules/{schedule.id}"
        assert service.client.connection.get(path)["scripts"]["scheduled"]
        job.delete()
        service.client.delete_model(job.status.model_id)
        fs, root = open_store(bucket)
        assert {each.removeprefix(root).split("/")[1] for each in fs.find(root)} == {"scripts"}
        said = "".join(log.read_text() for log in service.data.logs.glob("*.log"))
        assert "Traceback" not in said
    finally:
        stop_service(service)
