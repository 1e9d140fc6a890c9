"""Every service of docker-compose.yml in namespaces, from the wheel: a job goes through all of them."""

import hashlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.fixtures.containers import Containers
from tests.fixtures.service import seldom
from tests.fixtures.waiting import wait_for

KEY = "a-key-of-the-operator"


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory, installed_mallorn: Path) -> Iterator[Containers]:
    """All services, healthy, as an operator starts them who filled in .env."""
    dotenv = {
        "POSTGRES_PASSWORD": "letters",
        "MALLORN_API_KEYS": f"ada:{hashlib.sha256(KEY.encode()).hexdigest()}",
        "MALLORN_RPC_KEY": "b7" * 32,
        "MALLORN_SANDBOX": "best-effort",  # the kernel of a machine that runs tests may be an older one
        "MALLORN_SHIPPED": "false",
        "MALLORN_BUILDERS": "1",
    }
    with Containers(tmp_path_factory.mktemp("compose"), installed_mallorn, dotenv) as running:
        yield running


def typed(containers: Containers, *words: str, folder: Path) -> "CompletedProcess[str]":
    """Type a command on the host, as deploy/README.md says."""
    return containers.outside(
        "mallorn", *words, folder=folder, MALLORN_URL="http://127.0.0.1:8000", MALLORN_API_KEY=KEY
    )


def told(containers: Containers, *words: str, folder: Path) -> Any:
    done = typed(containers, *words, "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_job_goes_through_all_containers_and_leaves_its_files_where_there_is_room(
    containers: Containers, networks: Path, tmp_path: Path
) -> None:
    wait_for(seldom(partial(told, containers, "devices", folder=tmp_path)), "the device in the fleet")
    model = networks / "dense.onnx"
    done = typed(containers, "tune", str(model), "--trials", "4", "--out", "tuned", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tuned" / "manifest.json").is_file()
    for name in ("worker", "device"):
        assert list(containers.volume(f"{name}-scratch").glob(f"mallorn-part-{name}-*/*"))
    assert "Read-only file system" not in "".join(log.read_text() for log in containers.logs.glob("*.log"))


def test_the_worker_and_the_device_share_the_locks_of_their_host(
    containers: Containers, tmp_path: Path
) -> None:
    (device,) = wait_for(seldom(partial(told, containers, "devices", folder=tmp_path)), "the device")
    (worker,) = told(containers, "workers", folder=tmp_path)
    assert device["host_id"] == worker["host_id"]
    assert device["info"]["lock_file"] == worker["info"]["lock_file"] != ""
    (finding,) = [each for each in told(containers, "doctor", folder=tmp_path) if each["name"] == "locks"]
    assert finding["ok"], finding


@pytest.mark.parametrize("name", ["coordinator", "worker", "device"])
def test_a_container_writes_its_volumes_and_a_small_tmp_of_its_own_and_nothing_else(
    containers: Containers, name: str
) -> None:
    refused = containers.inside(name, "touch", "/home/mallorn/file")
    assert "Read-only file system" in refused.stderr
    assert containers.inside(name, "touch", f"/tmp/of-{name}").returncode == 0
    assert containers.inside(name, "ls", "/tmp").stdout.count("of-") == 1
    if name == "worker":  # `KnownLibraries.put` makes it
        assert containers.inside(name, "sh", "-c", 'mkdir "$MALLORN_DATA_DIR/libraries"').returncode == 0
    assert int(containers.inside(name, "df", "--output=size", "/tmp").stdout.split()[-1]) == 256 << 10
