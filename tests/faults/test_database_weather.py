"""Postgres that stands still, has no connection left, or ends those that there are."""

import random
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest
from sqlalchemy import make_url

from mallorn.core.errors import Unavailable
from mallorn.core.values.event import OtherEvent
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.session import Database
from mallorn.services.coordinator.web import app_parts
from mallorn.workers.round import run as round_run
from tests.fixtures.coordinator import OwnedRows, Start
from tests.fixtures.database import PostgresServer
from tests.fixtures.processes import family
from tests.fixtures.waiting import wait_for
from tests.fixtures.workshop import Workshop

POSTGRES = [pytest.param("postgres", marks=pytest.mark.postgres)]
pytestmark = pytest.mark.parametrize("database_url", POSTGRES, indirect=True)


@contextmanager
def stopped(url: str) -> Iterator[None]:
    """SIGSTOP for the server and all its backends: sockets stay open, and nobody answers."""
    with closing(psycopg.connect(plain(url))) as connection:
        (home,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    server = family(int((Path(home) / "postmaster.pid").read_text().split()[0]))
    for process in server:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield
    finally:
        for process in server:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def test_a_request_hears_that_the_database_is_silent(start: Start, database_url: str) -> None:
    coordinator = start()
    assert coordinator.http.get("/jobs").status_code == 200  # a connection is in the pool
    with stopped(database_url):
        answer = coordinator.http.get("/jobs", timeout=40)
    assert answer.status_code == 503
    assert answer.json()["error"] == "Unavailable"
    assert int(answer.headers["Retry-After"]) > 0
    wait_for(lambda: coordinator.http.get("/jobs").status_code == 200, "the coordinator to recover")


def test_a_stream_goes_on_when_the_database_is_back(
    start: Start, database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app_parts, "ANSWER_SEC", 1.0)
    coordinator = start()
    owned = OwnedRows(coordinator.database)
    tell(owned, "before")
    with coordinator.http.stream("GET", f"/jobs/{owned.job_id}/events") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "id: 1"
        with stopped(database_url):
            wait_for(lambda: "wait for the database" in caplog.text, "the stream to notice")
        wait_for(lambda: coordinator.http.get("/jobs").status_code == 200, "the coordinator to recover")
        tell(owned, "after")
        assert next(line for line in lines if line.startswith("id: ")) == "id: 2"


def tell(owned: OwnedRows, kind: str) -> None:
    owned.write(lambda session: Events(session).append(owned.job_id, OtherEvent(kind=kind, data={})))


def test_without_a_connection_left_requests_are_told_so_until_there_is_one(
    start: Start, database_url: str
) -> None:
    coordinator = start()
    taken = []
    with suppress(psycopg.OperationalError):
        while True:
            taken.append(psycopg.connect(plain(database_url)))
    answer = coordinator.http.get("/jobs")
    for connection in taken:
        connection.close()
    assert answer.status_code == 503, answer.text
    assert "Retry-After" in answer.headers
    wait_for(lambda: coordinator.http.get("/jobs").status_code == 200, "the coordinator to recover")


def test_a_slow_statement_is_ended_at_its_limit(database_url: str) -> None:
    database = Database(database_url, answer_sec=0.2)
    with pytest.raises(Unavailable, match=r"took longer than 0\.2 s"), database.session() as session:
        session.connection().exec_driver_sql("SELECT pg_sleep(600)")
    database.ping()
    database.dispose()


def test_no_result_is_lost_or_doubled_while_the_database_comes_and_goes(
    workshop: Workshop, database_url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 candidates; before a seeded one in ten the database throws everybody out for a while."""
    monkeypatch.setattr(round_run, "RETRY_SEC", 0.01)
    job_id, name = workshop.job(trials=200, round_size=50), make_url(database_url).database
    chance = random.Random(18)
    outages: list[threading.Timer] = []

    def come_back() -> None:
        postgres_server.run(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')

    def throw_out(_slot: object) -> None:
        if chance.random() < 0.1 and not any(outage.is_alive() for outage in outages):
            postgres_server.run(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            ours = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            postgres_server.run(ours)
            outages.append(threading.Timer(0.3, come_back))
            outages[-1].start()

    workshop.bench.before = throw_out
    try:
        workshop.work(job_id)
    finally:
        for outage in outages:
            outage.join()
    assert len(workshop.rows()) == 200
    assert set(workshop.bench.executions.values()) == {1}
    assert len(outages) > 1
