"""Postgres that fails over: what is reached only reads, keeps its connections, and is away for writers."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from benchmarks.postgres import Postgres
from mallorn.core.errors import Unavailable
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.stored_files import Models
from mallorn.db.session import Database
from mallorn.workers.round import run as round_run
from tests.fixtures.coordinator import Coordinator, Start
from tests.fixtures.database import PostgresServer
from tests.fixtures.workshop import Workshop

pytestmark = pytest.mark.postgres
on_postgres = pytest.mark.parametrize(
    "database_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)


class Primary:
    """A database that may only read for a while; connections that begin meanwhile do so until they end."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self._server = server
        self._name = make_url(url).database

    def step_down(self) -> None:
        self._server.run(f'ALTER DATABASE "{self._name}" SET default_transaction_read_only = on')
        ours = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._name}'"
        self._server.run(ours)

    def come_back(self) -> None:
        self._server.run(f'ALTER DATABASE "{self._name}" RESET default_transaction_read_only')


@pytest.fixture
def primary(postgres_server: PostgresServer, database_url: str) -> Primary:
    return Primary(postgres_server, database_url)


@on_postgres
def test_whoever_submits_hears_that_nothing_can_be_written_and_reads_go_on(
    start: Start, primary: Primary
) -> None:
    coordinator = start()
    model_id = coordinator.upload()
    primary.step_down()
    refused = [submit(coordinator, model_id) for _ in range(2)]
    listed = coordinator.http.get("/jobs")
    primary.come_back()
    assert [status for status, _ in refused] == [503, 503]
    assert "takes no writes" in refused[-1][1]
    assert listed.json()["items"] == []
    # The connection of the list still reads only: whoever meets it is refused, and nobody after him.
    answers = [submit(coordinator, model_id)[0] for _ in range(5)]
    assert answers[1:] == [201] * 4


def submit(coordinator: Coordinator, model_id: str) -> tuple[int, str]:
    answer = coordinator.submit(model_id=model_id)
    return answer.status_code, answer.text


@on_postgres
def test_no_result_is_lost_or_doubled_while_primaries_change(
    workshop: Workshop, primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 candidates; before a seeded one in ten the primary steps down for a while."""
    monkeypatch.setattr(round_run, "RETRY_SEC", 0.01)
    job_id, chance = workshop.job(trials=100, round_size=25), random.Random(38)
    changes: list[threading.Timer] = []

    def step_down(_slot: object) -> None:
        if chance.random() < 0.1 and not any(change.is_alive() for change in changes):
            primary.step_down()
            changes.append(threading.Timer(0.3, primary.come_back))
            changes[-1].start()

    workshop.bench.before = step_down
    try:
        workshop.work(job_id)
    finally:
        for change in changes:
            change.join()
    assert len(workshop.rows()) == 100
    assert Counter(workshop.bench.executions.values()) == {1: 100}
    assert len(changes) > 1


def test_a_standby_serves_readers_and_after_its_promotion_writers() -> None:
    with Postgres() as server:
        upgrade(server.url)
        database = Database(server.url)
        try:
            add(database)
            with database.session() as session:
                home = Path(session.scalar(text("SHOW data_directory")))
            (home / "standby.signal").touch()
            server.restart("fast")
            with pytest.raises(Unavailable):  # its connections were ended
                add(database)
            for _ in range(2):
                with database.session() as session:
                    assert len(Models(session).list(None).items) == 1
                with pytest.raises(Unavailable, match="takes no writes"):
                    add(database)
            with database.session() as session:
                session.execute(text("SELECT pg_promote()"))
            add(database)
        finally:
            database.dispose()


def add(database: Database) -> None:
    with database.transaction() as session:
        Models(session).add(f"{len(Models(session).list(None).items):064}", "ada", "mlp", 1)
