"""Engines for both databases, set up so that they behave alike.

SQLite: WAL, so that readers never wait; a write transaction takes the write lock when it begins (BEGIN
IMMEDIATE), so it waits its turn instead of failing half-way. `synchronous=NORMAL`: what is committed lies in
the operating system's cache and survives kill -9 of any process; only a power cut may cost the last moments.
Python's sqlite3 opens transactions in its own way; we switch that off and send BEGIN ourselves, which works
alike on Python 3.11 to 3.13.

"database is locked": SQLite itself waits BUSY_TIMEOUT_MS for the write lock, and nothing else waits or
retries, but for the change of a new file to WAL. Transactions here take milliseconds, so running out of it
means something is stuck: the caller gets Unavailable with nothing written.

Postgres: a pooler may give every transaction another of its connections (pgbouncer in transaction mode), so
nothing outlives a transaction, and no statement is prepared (ADR 0049). After a failover an old primary may
keep its connections open, and only read: a write that it refuses costs all connections of the pool.
"""

import math
import sqlite3
import time
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy
from psycopg.abc import PQGen
from sqlalchemy import URL, Connection, Engine, ExceptionContext, event, make_url
from sqlalchemy.exc import ArgumentError

from mallorn.core.errors import InvalidRequest

BUSY_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_SEC = 10
READ_ONLY: Final = "25006"
WRITE = "mallorn_write"  # execution option of a connection whose transactions write
T = TypeVar("T")
# The server ends a statement at its limit and lets its locks go; the client waits longer for word of it.
GRACE_SEC: Final = 1.0
LOOK_EVERY_SEC: Final = 0.1


class AnsweringConnection(psycopg.Connection[Any]):
    """Closes itself, with an OperationalError, when the server has not answered in time.

    A server that is stopped, or behind a network that swallows packets, keeps its sockets alive: the kernel
    confirms what is sent, so neither keepalives nor `tcp_user_timeout` notice, only the client's own clock.
    """

    limit_sec: float | None = None

    def wait(self, gen: PQGen[T], interval: float = LOOK_EVERY_SEC, timeout: float | None = None) -> T:
        """What psycopg waits with, for every statement, fetch, commit and rollback."""
        limit_sec = self.limit_sec if timeout is None else timeout
        if limit_sec is None:
            return super().wait(gen, interval)
        until_sec = time.monotonic() + limit_sec
        try:
            return super().wait(gen, interval, limit_sec)
        except psycopg.OperationalError as error:
            if time.monotonic() < until_sec:
                raise
            self.close()
            raise psycopg.OperationalError(f"no answer within {limit_sec:g} s") from error


def parse_url(url: str) -> URL:
    """The URL with its driver spelled out; InvalidRequest unless it is SQLite in a file or Postgres."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the second is what SQLAlchemy makes of a port that is no number
        raise InvalidRequest(
            f"{url!r} is not the URL of a database", hint="use sqlite:///FILE or postgresql://..."
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise InvalidRequest(
            f"cannot use the database {backend!r}", hint="use sqlite:///FILE or postgresql://..."
        )
    if parsed.database in (None, "", ":memory:"):
        raise InvalidRequest("SQLite needs a file", hint="write sqlite:////path/to/mallorn.db")
    return parsed


def create_engine(url: str, *, foreign_keys: bool = True, answer_sec: float | None = None) -> Engine:
    """An engine that connects on first use. Create it in the process that uses it, after any fork.

    `answer_sec`: how long Postgres may take for a connection and for a statement; without it as long as it
    likes for a statement, as migrations need it.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        engine = sqlalchemy.create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
        _prepare_sqlite(engine, foreign_keys=foreign_keys)
        return engine
    wait_sec = CONNECT_TIMEOUT_SEC if answer_sec is None else min(CONNECT_TIMEOUT_SEC, answer_sec)
    engine = sqlalchemy.create_engine(
        parsed,
        pool_pre_ping=True,
        pool_recycle=1800,
        pool_timeout=wait_sec,
        connect_args={
            "connect_timeout": math.ceil(wait_sec),
            "application_name": "mallorn",
            "prepare_threshold": None,
        },
    )
    _prepare_postgres(engine, answer_sec)
    return engine


def _prepare_postgres(engine: Engine, answer_sec: float | None) -> None:
    limit = ""
    if answer_sec is not None:  # no statement lasts longer, whether the server is slow or silent
        limit = f"SET LOCAL statement_timeout = {answer_sec * 1000:.0f};"

        @event.listens_for(engine, "do_connect")
        def connect(_dialect: Any, _record: Any, words: tuple[Any, ...], named: dict[str, Any]) -> Any:
            connection = AnsweringConnection.connect(*words, **named)
            connection.limit_sec = answer_sec + GRACE_SEC
            return connection

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # `postgresql_readonly` lets later ones begin with READ WRITE, which a standby does not understand.
        words = limit + ("" if _writes(connection) else "SET TRANSACTION READ ONLY")
        if words:
            connection.exec_driver_sql(words)

    @event.listens_for(engine, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        refused = getattr(context.original_exception, "sqlstate", None) == READ_ONLY
        if refused and context.connection is not None and _writes(context.connection):
            context.is_disconnect = True


def _writes(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get(WRITE))


def _prepare_sqlite(engine: Engine, *, foreign_keys: bool) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        write = _writes(connection)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if write else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Asks again while another process does the same to a new file: for this lock SQLite does not wait."""
    until_sec = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until_sec:
                raise
        time.sleep(0.01)
