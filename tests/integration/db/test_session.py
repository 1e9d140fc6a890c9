"""Reading blocks see one snapshot and cannot write; writing blocks commit all or nothing."""

import os
import sqlite3
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from sqlalchemy import event, insert, text
from sqlalchemy.exc import DBAPIError

from mallorn.core.errors import Unavailable
from mallorn.db.engine import create_engine
from mallorn.db.repositories.access_control import Usage
from mallorn.db.repositories.stored_files import Models
from mallorn.db.session import Database, read_clock
from mallorn.db.tables import Task
from tests.fixtures.waiting import wait_for

MODEL = "b" * 64


def count(database: Database) -> int:
    with database.session() as session:
        return len(Models(session).list(None).items)


def add(database: Database, model_id: str = MODEL) -> None:
    with database.transaction() as session:
        Models(session).add(model_id, "ada", "mlp", 1)


def test_a_transaction_commits_when_its_block_ends(database):
    add(database)
    assert count(database) == 1


def test_a_transaction_rolls_back_when_its_block_raises(database):
    with pytest.raises(ZeroDivisionError), database.transaction() as session:
        assert 1 / (Models(session).add(MODEL, "ada", "mlp", 1).size_bytes - 1)
    assert count(database) == 0


def test_writing_in_a_reading_block_is_an_error(database):
    with pytest.raises(DBAPIError, match=r"(?i)read.?only"), database.session() as session:
        Models(session).add(MODEL, "ada", "mlp", 1)
    add(database)  # and the connection is none the worse for it
    assert count(database) == 1


def test_a_reading_block_sees_one_snapshot(database):
    with database.session() as session:
        before = len(Models(session).list(None).items)
        add(database)
        assert len(Models(session).list(None).items) == before
    assert count(database) == before + 1


def test_writers_in_many_threads_wait_for_each_other(database):
    """Each reads a number and writes it back raised by one: none may be lost."""
    with database.transaction() as session:
        session.execute(
            text("INSERT INTO held_work (kind, subject, attempt, losses) VALUES ('plan', '1', 0, 0)")
        )

    def raise_ten_times() -> None:
        for _ in range(10):
            with database.transaction() as session:
                lock = " FOR UPDATE" if session.get_bind().dialect.name == "postgresql" else ""
                n = session.execute(text(f"SELECT attempt FROM held_work{lock}")).scalar_one()
                session.execute(text("UPDATE held_work SET attempt = :n"), {"n": n + 1})

    threads = [threading.Thread(target=raise_ten_times) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.session() as session:
        assert session.execute(text("SELECT attempt FROM held_work")).scalar_one() == 40


def test_the_clock_is_the_databases_own_and_moves_within_a_transaction(database):
    with database.transaction() as session:
        first = read_clock(session)
        readings = [read_clock(session) for _ in range(200)]
    assert readings == sorted(readings)
    assert readings[-1] > first > 1.7e9


def test_foreign_keys_are_enforced(database):
    statement = insert(Task).values(job_id="no job", index=0, name="n", weight=1, workload_id=77)
    with pytest.raises(DBAPIError, match=r"(?i)foreign key"), database.transaction() as session:
        session.execute(statement)


def test_a_forked_child_opens_connections_of_its_own(database):
    add(database)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns where there are threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            add(database, "c" * 64)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert count(database) == 2


def test_threads_that_come_first_at_once_share_one_engine(database, monkeypatch):
    """Of two, one would be dropped with its connections open."""
    both = threading.Barrier(2)

    def slow(*args, **options):
        both.wait(10)
        return create_engine(*args, **options)

    monkeypatch.setattr("mallorn.db.session.create_engine", slow)
    first = Database(database.url)
    with ThreadPoolExecutor() as threads:
        engines = list(threads.map(lambda _: first.engine, range(2)))
    assert engines[0] is engines[1] is first.engine
    first.dispose()


def test_a_connection_that_is_in_use_when_all_are_closed_is_closed_when_it_comes_back(database):
    with database.session() as session:
        held = session.connection().connection.dbapi_connection
        database.dispose()
        add(database)
    with pytest.raises((sqlite3.ProgrammingError, psycopg.OperationalError)):
        held.execute("SELECT 1")


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/none", "sqlite:////proc/none/mallorn.db"])
def test_a_database_that_is_not_there_is_unavailable(url):
    database = Database(url)
    with pytest.raises(Unavailable, match="does not answer"):
        database.ping()
    database.dispose()


@pytest.mark.postgres
def test_nothing_but_limits_of_time_outlives_a_transaction(clean_postgres):
    """A pooler may give connections away: behind one, nothing does (tests/faults/test_in_front.py)."""
    database = Database(clean_postgres, answer_sec=4)
    for number in range(20):
        with database.transaction() as session:
            Models(session).lock_model(MODEL)
            Usage(session).lock_owner_usage("ada")
            Models(session).add(f"{number:064}", "ada", "mlp", 1)
        with database.session() as session:
            assert session.scalar(text("SHOW statement_timeout")) == "4s"
    left = [
        "SELECT name FROM pg_prepared_statements",
        # The question's own transaction says what it is.
        "SELECT name FROM pg_settings WHERE source = 'session' AND name NOT LIKE 'transaction%' ORDER BY 1",
        "SELECT objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "SELECT pg_listening_channels()",
        "SELECT relname FROM pg_class WHERE relpersistence = 't'",
    ]
    raw = database.engine.raw_connection()  # the one that all of these had
    found = [raw.cursor().execute(query).fetchall() for query in left]
    assert found == [[], [("idle_session_timeout",), ("statement_timeout",)], *[[]] * 3]
    raw.close()
    assert database.engine.pool.checkedin() == 1
    database.dispose()


@pytest.mark.postgres
def test_connections_of_a_busy_moment_are_closed_once_they_rest(clean_postgres, monkeypatch):
    monkeypatch.setattr("mallorn.db.engine.IDLE_SEC", 1)
    database = Database(clean_postgres, answer_sec=4)
    together = threading.Barrier(4)

    def use() -> int:
        with database.session() as session:
            server_pid = session.scalar(text("SELECT pg_backend_pid()"))
            together.wait(30)
        return server_pid

    with ThreadPoolExecutor(4) as threads:
        pids = [done.result(30) for done in [threads.submit(use) for _ in range(4)]]
    among = text("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(:pids)")

    def connected() -> int:
        with database.session() as session:  # by the connection that is used again and again
            return session.scalar(among, {"pids": pids})

    assert connected() == 4
    wait_for(lambda: connected() == 1, "all connections but one to be closed")
    database.dispose()


@pytest.mark.postgres
def test_a_transaction_sends_no_statements_of_its_own(clean_postgres):
    database = Database(clean_postgres, answer_sec=4)
    add(database)  # connects
    sent: list[str] = []
    event.listen(database.engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
    count(database)
    with database.transaction() as session:
        session.execute(text("SELECT 1"))
    assert [statement.split()[0] for statement in sent] == ["SELECT", "SELECT"]
    database.dispose()


def test_sqlite_keeps_its_promises(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    with database.session() as session:
        settings = {
            name: session.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    database.dispose()
    assert settings == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 30_000}
