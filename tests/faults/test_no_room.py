"""Real processes whose host gives them no more: no byte on the disk, no file handle, no right to write.

A limit of a live process stands for the disk and the table of handles: what is open stays open, and
the next byte or file is refused by the kernel, for root too.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import psutil
import pytest

from mallorn.core.address_checks import free_port
from mallorn.core.states import JobState
from tests.fixtures.command_line import assert_refused, clean_environment, mallorn, typed
from tests.fixtures.processes import end, family, the_one
from tests.fixtures.service import JOB_SEC, START_SEC, seldom, start_service, stop_service, trials
from tests.fixtures.waiting import wait_for

KEPT: Final = b"kept before"


class Served:
    """`mallorn serve` in a process of its own, on a data directory."""

    def __init__(self, data: Path, port: int) -> None:
        self.data = data
        self.env = {"MALLORN_DATA_DIR": str(data), "MALLORN_PORT": str(port)}
        self.log = data.parent / "serve.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                typed("serve"), env=clean_environment(**self.env), stdout=log, stderr=log
            )
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60)
        wait_for(self._answers, "the coordinator", START_SEC)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with suppress(httpx.TransportError):
            return self.http.get("/models").status_code == 200
        return False

    def upload(self, content: bytes) -> httpx.Response:
        return self.http.put("/models", params={"name": "net.onnx"}, content=content)

    def models(self) -> list[str]:
        return [each["id"] for each in self.http.get("/models").json()["items"]]

    @contextmanager
    def limited(self, what: int, most: int) -> Iterator[None]:
        """What the process may have of something, for a while."""
        process = psutil.Process(self.process.pid)
        before = process.rlimit(what)
        process.rlimit(what, (most, before[1]))
        try:
            yield
        finally:
            process.rlimit(what, before)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A coordinator that holds a model."""
    data = tmp_path / "data"
    assert mallorn("migrate", MALLORN_DATA_DIR=str(data)).returncode == 0
    started = Served(data, free_port())
    assert started.upload(KEPT).status_code == 200
    yield started
    started.http.close()
    end(started.process)


def assert_said(answer: httpx.Response, status_code: int, *words: str) -> None:
    """One sentence and a way out, in the one shape of errors."""
    assert answer.status_code == status_code, answer.text
    body = answer.json()
    assert all(word in body["detail"] for word in words), body
    assert body["hint"]


def assert_whole(served: Served, *models: str) -> None:
    """Nothing is lost, nothing is half there, and the process never ended."""
    assert set(models) == set(served.models())
    assert served.process.poll() is None
    assert {each.name for each in (served.data / "artifacts" / "models").iterdir()} == set(models)
    assert "Traceback" not in served.log.read_text()


def assert_healthy(served: Served) -> None:
    assert mallorn("doctor", "--data", str(served.data)).returncode == 0


def test_without_a_byte_left_writing_is_refused_in_words_and_reading_goes_on(served: Served) -> None:
    (kept,) = served.models()
    with served.limited(psutil.RLIMIT_FSIZE, 0):
        assert_said(served.upload(b"another"), 507, str(served.data / "artifacts" / "models"), "too large")
        assert_said(served.http.delete(f"/models/{kept}"), 507, str(served.data / "mallorn.db"))
        assert served.models() == [kept]
    assert_whole(served, kept)
    another = served.upload(b"another")
    assert another.status_code == 200
    assert served.http.delete(f"/models/{kept}").status_code == 204
    assert_whole(served, another.json()["id"])
    assert_healthy(served)


def test_without_a_file_handle_requests_are_told_so_until_there_is_one(served: Served) -> None:
    (kept,) = served.models()
    most = max(map(int, os.listdir(f"/proc/{served.process.pid}/fd"))) + 1
    with served.limited(psutil.RLIMIT_NOFILE, most):
        answer = served.upload(b"another")
    assert_said(answer, 503, "too many open files")
    assert "Retry-After" in answer.headers
    assert "ulimit -n" in answer.json()["hint"]
    another = served.upload(b"another")
    assert another.status_code == 200
    assert_whole(served, kept, another.json()["id"])
    assert_healthy(served)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """No user may write below: a file system that is mounted so for root, whom rights do not stop."""
    if os.getuid() != 0:
        folders = [place, *(each for each in place.rglob("*") if each.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        yield
        for folder in folders:
            folder.chmod(0o755)
        return
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    yield
    subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A place that can be made read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.getuid() != 0:
        yield place
        return
    mount = ["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("root without the right to mount writes everywhere")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_read_only_directory_is_named_and_what_lies_there_is_served_again_later(disk: Path) -> None:
    data = disk / "data"
    assert mallorn("migrate", MALLORN_DATA_DIR=str(data)).returncode == 0
    with read_only(disk):
        assert_refused(mallorn("up", "--port", "0", "--data", str(data)), str(data))
        looked = mallorn("doctor", "--data", str(data))
        mended = mallorn("doctor", "--repair", "--data", str(data))
    for result in (looked, mended):
        assert result.returncode > 0
        assert str(data) in result.stdout + result.stderr
        assert "Traceback" not in result.stderr
    assert mallorn("doctor", "--data", str(data)).returncode == 0


TRIALS: Final = 12


def test_a_worker_without_file_handles_says_so_and_no_candidate_is_dropped_or_doubled(
    tmp_path: Path, networks: Path
) -> None:
    service = start_service(tmp_path)
    try:
        job = service.client.submit(networks / "dense.onnx", trials=TRIALS, policy="round-robin")
        wait_for(seldom(lambda: len(trials(service.client, job)) >= 4), "some trials", JOB_SEC)
        limits = starve(family(the_one(service.process.pid, "-m", "mallorn", "worker", "tuner1").pid))

        def starved() -> str:
            status = job.refresh()
            return status.hint if "too many open files" in status.waiting_because else ""

        hint = wait_for(seldom(starved), "why the job does not go on", JOB_SEC)
        assert "ulimit -n" in hint
        for process, before in limits.items():
            with suppress(psutil.NoSuchProcess):
                process.rlimit(psutil.RLIMIT_NOFILE, before)
        if job.refresh().state == JobState.PAUSED:
            job.resume()
        job.wait(JOB_SEC)
        counted = trials(service.client, job)
        assert len(counted) == TRIALS
        assert not [each.error for each in counted if "open files" in (each.error or "")]
        assert job.body["report"]["schedule_count"] == job.body["report"]["workload_count"] > 0
    finally:
        stop_service(service)


def starve(processes: list[psutil.Process]) -> dict[psutil.Process, tuple[int, int]]:
    """Leave each the handles that it has, and no more; what they had before."""
    before = {}
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            before[process] = process.rlimit(psutil.RLIMIT_NOFILE)
            process.rlimit(psutil.RLIMIT_NOFILE, (process.num_fds(), before[process][1]))
    return before
