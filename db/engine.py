"""SQLAlchemy engines for SQLite and Postgres, configured so that both behave alike.

SQLite: in WAL mode readers never wait. A write transaction takes the write lock when it
begins (BEGIN IMMEDIATE), so it waits instead of failing half-way. With `synchronous=NORMAL`
committed data is in the operating system's cache and survives kill -9 of any process; only
a power cut may lose the last commits. Python's sqlite3 opens transactions in its own way;
we switch that off and send BEGIN ourselves, which works the same on Python 3.11 to 3.13.

"database is locked": SQLite waits up to BUSY_TIMEOUT_MS for the write lock. Nothing else
waits or retries, except the switch of a new file to WAL. Transactions here take
milliseconds, so a timeout means that something is stuck, and becomes Unavailable.

Postgres: a pooler in transaction mode (pgbouncer) may run each transaction on a different
connection, so behind one no setting outlives a transaction, and no statement is prepared
(ADR 0049). After a failover an old primary may keep its connections open but reject
writes: the pool drops them. The server closes connections that rest for IDLE_SEC; the pool
lends the last used one first, so that those of a busy moment come to rest.

The drivers' errors become Unavailable or StorageFull (`translate_database_errors`).
"""

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
import sqlalchemy
from psycopg.abc import PQGen
from sqlalchemy import URL, Connection, Engine, ExceptionContext, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from mallorn.core.errors import InvalidRequest, MallornError, StorageFull, Unavailable
from mallorn.core.os_errors import can_open_file, explain_os_error, too_many_files_error

BUSY_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_SEC = 10
READ_ONLY: Final = "25006"
WRITE = "mallorn_write"  # execution option of a connection whose transactions write
T = TypeVar("T")
# The server ends a statement at its limit; the client waits for this much longer.
GRACE_SEC: Final = 1.0
LOOK_EVERY_SEC: Final = 0.1
IDLE_SEC: Final = 30
CAN_END_IDLE: Final = 140_000  # first version of Postgres with `idle_session_timeout`
_IS_DIRECT: Final = "is_direct"  # whether a connection leads to the server itself, not to a pooler


class AnsweringConnection(psycopg.Connection[Any]):
    """Postgres connection that closes and raises OperationalError if an answer is late.

    The sockets of a stopped server, or one behind a network that drops packets, stay open:
    a kernel acknowledges what is sent, so keepalives and TCP user timeouts do not help.
    """

    limit_sec: float | None = None

    def wait(self, gen: PQGen[T], interval: float = LOOK_EVERY_SEC, timeout: float | None = None) -> T:
        """Wait for the server; psycopg calls this for each statement, fetch and commit."""
        limit_sec = self.limit_sec if timeout is None else timeout
        if limit_sec is None:
            return super().wait(gen, interval)
        deadline_sec = time.monotonic() + limit_sec
        try:
            return super().wait(gen, interval, limit_sec)
        except psycopg.OperationalError as error:
            if time.monotonic() < deadline_sec:
                raise
            self.close()
            raise psycopg.OperationalError(f"the database did not answer within {limit_sec:g} s") from error


def parse_url(url: str) -> URL:
    """Return the URL with its driver. Raises InvalidRequest unless Postgres or a SQLite file."""
    try:
        address = make_url(url)
    except (ArgumentError, ValueError):  # SQLAlchemy raises ValueError if the port is not a number
        message = f"{url!r} is not the URL of a database"
        raise InvalidRequest(message, hint="use sqlite:///FILE or postgresql://...") from None
    backend = address.get_backend_name()
    if backend == "postgresql":
        return address.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        message = f"cannot use the database {backend!r}"
        raise InvalidRequest(message, hint="use sqlite:///FILE or postgresql://...")
    if address.database in (None, "", ":memory:"):
        raise InvalidRequest("the SQLite URL names no file", hint="write sqlite:////path/to/mallorn.db")
    return address


def create_engine(url: str, *, foreign_keys: bool = True, answer_sec: float | None = None) -> Engine:
    """Return an engine that connects on first use; create it only after any fork.

    `answer_sec` limits how long Postgres may take to connect and to run a statement; None
    sets no limit for statements, as migrations need. Raises InvalidRequest for a bad URL.
    """
    address = parse_url(url)
    if address.get_backend_name() == "sqlite":
        engine = sqlalchemy.create_engine(address, connect_args={"timeout": BUSY_TIMEOUT_MS / 1000})
        _prepare_sqlite(engine, foreign_keys=foreign_keys)
        return engine
    wait_sec = CONNECT_TIMEOUT_SEC if answer_sec is None else min(CONNECT_TIMEOUT_SEC, answer_sec)
    engine = sqlalchemy.create_engine(
        address,
        pool_pre_ping=True,
        pool_use_lifo=True,
        pool_recycle=1800,
        pool_timeout=wait_sec,
        connect_args={
            "connect_timeout": math.ceil(wait_sec),
            "application_name": "mallorn",
            "prepare_threshold": None,
        },
    )
    limit = ""
    if answer_sec is not None:  # limits statements whether the server is slow or does not answer
        limit = f"statement_timeout = {answer_sec * 1000:.0f}"

        @event.listens_for(engine, "do_connect")
        def connect(_dialect: Any, _record: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            connection = AnsweringConnection.connect(*args, **kwargs)
            connection.limit_sec = answer_sec + GRACE_SEC
            return connection

        @event.listens_for(engine, "connect")
        def limit_session(connection: Any, record: Any) -> None:
            (server_pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
            record.info[_IS_DIRECT] = server_pid == connection.info.backend_pid  # a pooler has ids of its own
            if record.info[_IS_DIRECT]:
                connection.execute(f"SET {limit}")
                if connection.info.server_version >= CAN_END_IDLE:
                    connection.execute(f"SET idle_session_timeout = '{IDLE_SEC}s'")
            connection.commit()

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # None rather than False, because a standby rejects transactions that begin with READ WRITE.
        driver: Any = connection.connection.driver_connection
        driver.read_only = None if _is_write_transaction(connection) else True
        if limit and not connection.info[_IS_DIRECT]:
            connection.exec_driver_sql(f"SET LOCAL {limit}")

    @event.listens_for(engine, "handle_error")
    def on_error(context: ExceptionContext) -> None:
        is_read_only = getattr(context.original_exception, "sqlstate", None) == READ_ONLY
        if is_read_only and context.connection is not None and _is_write_transaction(context.connection):
            context.is_disconnect = True

    return engine


def _is_write_transaction(connection: Connection) -> bool:
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
        write = _is_write_transaction(connection)
        connection.exec_driver_sql(f"PRAGMA query_only = {'OFF' if write else 'ON'}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode; retry while another process does, as SQLite does not wait."""
    deadline_sec = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline_sec:
                raise
        time.sleep(0.01)


# SHMSIZE: the WAL index cannot grow, the error of the first read on a full disk.
_SQLITE_FULL = frozenset({"SQLITE_FULL", "SQLITE_IOERR_SHMSIZE"})
_SQLITE_UNREACHABLE = ("SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_CANTOPEN")
SQLITE_DAMAGE = ("SQLITE_NOTADB", "SQLITE_CORRUPT")
_SQLITE_NOT_WRITTEN = ("SQLITE_READONLY", "SQLITE_IOERR")
_WRITABLE = "ls -l the file and its folder; mount; then mallorn doctor"
_POSTGRES_FULL = "53100"
_POSTGRES_QUERY_CANCELED = "57014"
# Connection lost, a transaction's timeout, out of connections or memory, a lock's timeout,
# shutdown, and the two errors after which a transaction should be retried.
_POSTGRES_UNREACHABLE = ("08", "25P03", "25P04", "53", "55P03", "57", "40001", "40P01")
_RESTORE = "mallorn doctor   (then docs/runbook.md, Damage)"
_CHECK = "check MALLORN_DATABASE_URL and that the database runs"
_PRIMARY = (
    "check that MALLORN_DATABASE_URL leads to the primary (docs/runbook.md, Database, broker and store)"
)
_LOOK = "request fewer rows; if small queries are slow too, check the database's load"


@contextmanager
def translate_database_errors(
    writes_to: str | None = None, answer_sec: float | None = None
) -> Iterator[None]:
    """Raise StorageFull if the disk is full, Unavailable if the database is silent or busy.

    `writes_to` names the database of a block that may write: there StorageFull also means
    that its file cannot be written. `answer_sec` limits each statement on Postgres.
    """
    try:
        yield
    except DBAPIError as error:
        translation: MallornError | None
        name = getattr(error.orig, "sqlite_errorname", "")
        is_timeout = getattr(error.orig, "sqlstate", None) == _POSTGRES_QUERY_CANCELED
        if is_timeout and answer_sec is not None:
            message = f"the query took longer than {answer_sec:g} s and was ended"
            translation = Unavailable(message, hint=_LOOK)
        else:
            translation = _translation(error.orig, is_invalidated=error.connection_invalidated)
        if translation is None and writes_to is not None and name.startswith(_SQLITE_NOT_WRITTEN):
            # The host prevents writes: a read-only file, a limit, or a faulty disk.
            translation = StorageFull(f"{writes_to} cannot be written: {error.orig}", hint=_WRITABLE)
        if translation is None:
            raise
        raise translation from error
    except PoolTimeout as error:
        raise Unavailable("all database connections of this process are in use") from error


def _translation(original: BaseException | None, *, is_invalidated: bool) -> MallornError | None:
    if isinstance(original, psycopg.Error):
        state = original.sqlstate
        if state == _POSTGRES_FULL:
            return StorageFull("the database server's disk is full; free some room there, then resume")
        if is_invalidated and state == READ_ONLY:
            return Unavailable(f"the database takes no writes: {original}", hint=_PRIMARY)
        is_unreachable = isinstance(original, psycopg.OperationalError) and state is None
        if is_invalidated or is_unreachable or (state or "").startswith(_POSTGRES_UNREACHABLE):
            return Unavailable(f"the database does not answer: {original}", hint=_CHECK)
        return None
    if not isinstance(original, sqlite3.Error):
        return None
    name = getattr(original, "sqlite_errorname", "")
    if name in _SQLITE_FULL:
        return StorageFull()
    if name.startswith("SQLITE_CANTOPEN") and not can_open_file():
        return too_many_files_error("the database")
    if name == "SQLITE_NOMEM":
        return explain_os_error(MemoryError())
    if name.startswith(_SQLITE_UNREACHABLE):
        return Unavailable(f"the database does not answer: {original}", hint=_CHECK)
    if name.startswith(SQLITE_DAMAGE):
        return Unavailable(f"the database file cannot be read: {original}", hint=_RESTORE)
    return None
