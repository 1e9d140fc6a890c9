"""Which databases are accepted, and how their drivers' errors are told."""

import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from mallorn.core.errors import InvalidRequest, StorageFull, Unavailable
from mallorn.db.engine import create_engine, parse_url, translate_database_errors
from mallorn.db.session import Database


def test_postgres_is_spoken_to_through_psycopg():
    assert parse_url("postgresql://u:p@h/d").drivername == "postgresql+psycopg"


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://h/d", "postgresql://one:5432,two:5432/d"]
)
def test_a_database_that_processes_cannot_share_or_reach_is_refused(url):
    with pytest.raises(InvalidRequest):
        parse_url(url)


def test_two_processes_may_be_the_first_in_a_new_file(tmp_path, monkeypatch):
    with closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE theirs (x)")
        meanwhile = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: other.execute("COMMIT"))
        monkeypatch.setattr("mallorn.db.engine.time", meanwhile)
        database = Database(f"sqlite:///{tmp_path / 'new.db'}")
        database.ping()
        database.dispose()


def sqlite_error(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("no luck")
    error.sqlite_errorname = name
    return error


def raise_from_driver(
    error: Exception, *, lost: bool = False, writes_to: str | None = None, answer_sec: float | None = None
) -> None:
    with translate_database_errors(writes_to, answer_sec):
        raise OperationalError("SELECT 1", {}, error, connection_invalidated=lost)


@pytest.mark.parametrize("error", [sqlite_error("SQLITE_FULL"), psycopg.errors.DiskFull()])
def test_a_full_disk_is_storage_full(error):
    with pytest.raises(StorageFull, match="free some room"):
        raise_from_driver(error)


@pytest.mark.parametrize(
    "error",
    [
        sqlite_error("SQLITE_BUSY"),
        sqlite_error("SQLITE_BUSY_SNAPSHOT"),
        sqlite_error("SQLITE_CANTOPEN"),
        psycopg.OperationalError("connection refused"),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.CrashShutdown(),
        psycopg.errors.CannotConnectNow(),
        psycopg.errors.ProtocolViolation("query_wait_timeout"),  # how pgbouncer says it
        psycopg.errors.IdleInTransactionSessionTimeout(),
        psycopg.errors.LockNotAvailable(),
        psycopg.errors.OutOfMemory(),
        psycopg.errors.SerializationFailure(),
        psycopg.errors.DeadlockDetected(),
        psycopg.errors.TooManyConnections(),
    ],
)
def test_a_database_that_does_not_answer_is_unavailable(error):
    with pytest.raises(Unavailable) as caught:
        raise_from_driver(error)
    assert "MALLORN_DATABASE_URL" in caught.value.hint


@pytest.mark.parametrize("name", ["SQLITE_READONLY", "SQLITE_READONLY_DIRECTORY", "SQLITE_IOERR_WRITE"])
def test_a_file_that_cannot_be_written_is_named_to_whoever_may_write(name):
    with pytest.raises(StorageFull, match=r"/data/mallorn.db cannot be written: no luck") as caught:
        raise_from_driver(sqlite_error(name), writes_to="/data/mallorn.db")
    assert "mallorn doctor" in caught.value.hint
    with pytest.raises(OperationalError):
        raise_from_driver(sqlite_error(name))


def test_a_slow_question_is_not_called_a_silent_database():
    with pytest.raises(Unavailable, match=r"the query took longer than 4 s and was ended"):
        raise_from_driver(psycopg.errors.QueryCanceled("canceling statement"), answer_sec=4.0)


def test_a_database_that_only_reads_is_unavailable_to_whoever_writes():
    read_only = psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT")
    with pytest.raises(Unavailable, match="takes no writes: cannot execute INSERT"):
        raise_from_driver(read_only, lost=True)
    with pytest.raises(OperationalError):  # in a block that reads it is a mistake of ours
        raise_from_driver(read_only)


def test_a_url_may_name_several_hosts_of_which_the_one_that_writes_is_taken():
    url = "postgresql://u:p@/db?host=one:5432&host=two:5433&target_session_attrs=read-write"
    engine = create_engine(url)
    _, named = engine.dialect.create_connect_args(engine.url)
    assert (named["host"], named["port"]) == ("one,two", "5432,5433")
    assert named["target_session_attrs"] == "read-write"


def test_a_lost_connection_is_unavailable():
    with pytest.raises(Unavailable):
        raise_from_driver(psycopg.DatabaseError(), lost=True)


@pytest.mark.parametrize("error", [sqlite_error("SQLITE_ERROR"), psycopg.errors.UndefinedTable()])
def test_a_mistake_of_ours_stays_what_it_is(error):
    with pytest.raises(OperationalError):
        raise_from_driver(error)
