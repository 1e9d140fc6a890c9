"""Scaled out: every part started by its own command, against Postgres, a Redis server and API keys."""

import hashlib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mallorn import Client, MallornError
from mallorn.core.errors import NotFound
from stack.ports import free_port
from stack.valkey import valkey_command
from tests.fixtures.command_line import clean_environment, typed
from tests.fixtures.database import PostgresServer
from tests.fixtures.processes import end
from tests.fixtures.service import JOB_SEC, START_SEC, dense_network, seldom, trials
from tests.fixtures.waiting import wait_for

KEYS = {"ada": "key-of-ada", "bob": "key-of-bob"}
PARTS = (
    ("serve",),
    ("control",),
    ("control", "--beat"),
    ("tracker",),
    ("device", "--target", "local", "--name", "scaled-out"),
    ("worker", "--name", "first"),
    ("worker", "--name", "second"),
)


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The coordinator's address."""
    directory = tmp_path_factory.mktemp("parts")
    port = free_port()
    tracker_port = free_port(besides=(port,))
    redis_port = free_port(besides=(port, tracker_port))
    digests = (f"{name}:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items())
    settings = {
        "MALLORN_DATABASE_URL": postgres_server.create("parts"),
        "MALLORN_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
        "MALLORN_TRACKER": f"127.0.0.1:{tracker_port}",
        "MALLORN_ARTIFACTS": f"file://{directory}/artifacts",
        "MALLORN_DATA_DIR": str(directory / "data"),
        "MALLORN_PORT": str(port),
        "MALLORN_API_KEYS": ",".join(digests),
    }
    redis = [*valkey_command(directory / "redis.sock"), "--port", str(redis_port), "--bind", "127.0.0.1"]
    env = clean_environment(**settings)
    subprocess.run(typed("migrate"), env=env, check=True)
    with ExitStack() as stack:
        for number, command in enumerate([redis, *(typed(*part) for part in PARTS)]):
            log = stack.enter_context((directory / f"{number}.log").open("wb"))
            stack.callback(end, subprocess.Popen(command, env=env, stdout=log, stderr=log))
        address = f"http://127.0.0.1:{port}"
        wait_for(seldom(lambda: _ready(address)), "all parts", START_SEC)
        yield address


def _ready(address: str) -> bool:
    with Client(address, KEYS["ada"]) as client:
        try:
            return len(client.workers()) == 2 and any(device.online for device in client.devices())
        except MallornError:
            return False


def test_two_owners_tune_on_one_device_and_see_only_their_own(url: str, networks: Path) -> None:
    (networks / "wide.onnx").write_bytes(dense_network(width=96))
    with Client(url, KEYS["ada"]) as admin:  # those of the environment may do all
        keys = [admin.create_key("theirs", owner=owner).key for owner in KEYS]
    with Client(url, keys[0]) as ada, Client(url, keys[1]) as bob:
        mine = ada.tune(networks / "dense.onnx", trials=8)
        yours = bob.tune(networks / "wide.onnx", trials=8)
        for job in (mine, yours):
            job.wait(JOB_SEC)
            assert job.body["report"]["found"] == job.body["report"]["of"]
        assert [job.id for job in ada.jobs()] == [mine.id]
        assert len(trials(ada, mine)) == 8
        for look in (lambda: ada.job(yours.id), lambda: list(ada.records(job=yours.id))):
            with pytest.raises(NotFound, match="there is no job"):
                look()


def test_without_a_key_nothing_is_told(url: str) -> None:
    with Client(url, "not-a-key") as stranger, pytest.raises(MallornError, match="key"):
        list(stranger.jobs())
