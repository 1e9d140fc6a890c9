"""Scaled out: every part started by its own command, against Postgres, a Redis server and API keys."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from mallorn import Client, MallornError
from mallorn.core.errors import NotFound
from tests.fixtures.command_line import typed
from tests.fixtures.database import PostgresServer
from tests.fixtures.parts_by_hand import started_by_hand
from tests.fixtures.service import JOB_SEC, dense_network, trials

KEYS = {"ada": "key-of-ada", "bob": "key-of-bob"}
PARTS = (
    ("serve",),
    ("control",),
    ("tracker",),
    ("device", "--target", "local", "--name", "scaled-out"),
    ("worker", "--name", "first"),
    ("worker", "--name", "second"),
)


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The coordinator's address."""
    directory = tmp_path_factory.mktemp("parts")
    digests = (f"{name}:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items())

    def as_ada(address: str) -> Client:
        return Client(address, KEYS["ada"])

    with started_by_hand(
        directory,
        [typed(*part) for part in PARTS],
        as_ada,
        workers=2,
        MALLORN_DATABASE_URL=postgres_server.create("parts"),
        MALLORN_API_KEYS=",".join(digests),
    ) as parts:
        yield parts.url


def test_two_owners_tune_on_one_device_and_see_only_their_own(url: str, networks: Path) -> None:
    (networks / "wide.onnx").write_bytes(dense_network(width=96))
    with Client(url, KEYS["ada"]) as admin:  # those of the environment may do all
        keys = [admin.create_key("theirs", owner=owner).key for owner in KEYS]
    with Client(url, keys[0]) as ada, Client(url, keys[1]) as bob:
        mine = ada.submit(networks / "dense.onnx", trials=4)
        yours = bob.submit(networks / "wide.onnx", trials=4)
        for job in (mine, yours):
            job.wait(JOB_SEC)
            assert job.body["report"]["schedule_count"] == job.body["report"]["workload_count"]
        assert [job.id for job in ada.jobs()] == [mine.id]
        assert len(trials(ada, mine)) == 4
        for look in (lambda: ada.job(yours.id), lambda: list(ada.records(job=yours.id))):
            with pytest.raises(NotFound, match="there is no job"):
                look()


def test_without_a_key_nothing_is_told(url: str) -> None:
    with Client(url, "not-a-key") as stranger, pytest.raises(MallornError, match="key"):
        list(stranger.jobs())
