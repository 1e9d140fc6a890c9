"""A disk that is full: the job says so, nothing breaks, and it goes on once there is room."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fixtures.command_line import assert_refused, mallorn
from tests.fixtures.service import JOB_SEC, Service, seldom, start_service, stop_service, trials
from tests.fixtures.waiting import wait_for

pytestmark = pytest.mark.long
DISK_MEGABYTES = 48
TRIALS = 32
FULL = "is full"


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


def fill(file: Path, database: Path) -> None:
    """Take all the room there is, also what SQLite could use again in its log."""
    wait_for(lambda: cut_log(database), "the end of SQLite's log")
    with file.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(bytes(4096))


def cut_log(database: Path) -> bool:
    """Whether all of it is in the database now, and the file empty: nobody reads or writes in between."""
    connection = sqlite3.connect(database)
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.close()
    return not busy


def test_a_full_disk_is_named_and_the_job_goes_on_with_more_room(cramped: Service, networks: Path) -> None:
    job = cramped.client.submit(networks / "tiny.onnx", trials=TRIALS)
    wait_for(seldom(lambda: len(trials(cramped.client, job)) >= 4), "some trials", JOB_SEC)
    filler = cramped.data.path / "filler"
    fill(filler, cramped.data.path / "mallorn.db")
    wait_for(seldom(lambda: FULL in job.refresh().waiting_because), "words about the disk")
    url = cramped.client.connection.url
    assert FULL in mallorn("show", job.id, MALLORN_URL=url).stdout
    assert_refused(mallorn("submit", str(networks / "mlp.onnx"), MALLORN_URL=url), FULL, "df -h")
    assert_refused(mallorn("jobs", "pause", job.id, MALLORN_URL=url), FULL)

    filler.unlink()
    assert mallorn("jobs", "pause", job.id, MALLORN_URL=url).returncode == 0
    job.resume()
    job.wait(JOB_SEC)
    assert len(trials(cramped.client, job)) == TRIALS
    assert job.body["report"]["schedule_count"] == job.body["report"]["workload_count"] > 0
