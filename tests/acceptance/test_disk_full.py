"""A disk that is full: the job says so, nothing breaks, and it goes on once there is room."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fixtures.command_line import assert_refused, mallorn
from tests.fixtures.service import Service, start_service, stop_service, trials, wait_for

DISK_MEGABYTES = 48
FULL = "The disk that holds the data directory is full"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, as small as a service can live on."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "tmpfs", str(place)]
    with suppress(FileNotFoundError):
        if subprocess.run(mount, capture_output=True).returncode == 0:
            yield place
            subprocess.run(["umount", "--lazy", str(place)], check=True)
            return
    pytest.skip("a small file system can be mounted by root only")


@pytest.fixture
def cramped(small_disk: Path) -> Iterator[Service]:
    started = start_service(small_disk)
    yield started
    stop_service(started)


def fill(file: Path) -> None:
    """Take all the room there is."""
    with file.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(bytes(4096))


def test_a_full_disk_is_named_and_the_job_goes_on_with_more_room(cramped: Service, networks: Path) -> None:
    job = cramped.client.tune(networks / "tiny.onnx", trials=24)
    wait_for(lambda: len(trials(cramped.client, job)) >= 4)
    filler = cramped.data.path / "filler"
    fill(filler)
    wait_for(lambda: FULL in job.refresh()["reason"])
    url = cramped.client.connection.url
    assert FULL in mallorn("show", job.id, MALLORN_URL=url).stdout
    assert_refused(mallorn("submit", str(networks / "mlp.onnx"), MALLORN_URL=url), FULL, "df -h")
    assert_refused(mallorn("pause", job.id, MALLORN_URL=url), FULL)

    filler.unlink()
    assert mallorn("pause", job.id, MALLORN_URL=url).returncode == 0
    job.resume()
    job.wait(300)
    assert len(trials(cramped.client, job)) == 24
    assert job.body["report"]["found"] == job.body["report"]["of"] > 0
