"""How every process talks to the database: `Database`, with one block for reading and one for writing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from sqlalchemy import Engine, event, select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from db.database_clock import now
from db.engine import WRITE, create_engine, parse_url
from db.translate_driver_errors import translated

# Transactions take milliseconds; some of those who read take seconds.
ANSWER_SEC: Final = 30.0


class Database:
    """One database, opened on first use in the process (and again after a fork).

    Both blocks raise Unavailable when the database does not answer, StorageFull when its disk is full. Then
    nothing of a `transaction` is stored and it may be run again. Postgres has `answer_sec` a statement.

        with db.session() as session:        # reads one snapshot; writing in it is an error
            job = Jobs(session).get(job_id, owner)
        with db.transaction() as session:    # commits at the end, rolls back on any exception
            Jobs(session).pause(job_id)
    """

    def __init__(self, url: str, *, answer_sec: float | None = ANSWER_SEC) -> None:
        parse_url(url)
        self.url = url
        self._answer_sec = answer_sec
        self._engines: dict[int, Engine] = {}  # by process

    @property
    def engine(self) -> Engine:
        """The engine of this process; connections that a parent process opened are left to it."""
        pid = os.getpid()
        if pid not in self._engines:
            for inherited in self._engines.values():
                inherited.dispose(close=False)
            # Of several threads that come first at once one engine stays, and none has connections yet.
            self._engines.setdefault(pid, create_engine(self.url, answer_sec=self._answer_sec))
        return self._engines[pid]

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Read only, one consistent snapshot: whoever waits for news opens a new one."""
        engine = self.engine
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        with translated(answer_sec=self._answer_sec), _open(engine) as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Read and write; commits when the block ends, rolls back when it raises."""
        engine = self.engine.execution_options(**{WRITE: True})
        explained = translated(engine.url.database, self._answer_sec)
        with explained, _open(engine) as session, session.begin():
            yield session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.dispose()

    def ping(self) -> None:
        """Raise Unavailable unless the database answers."""
        with self.session() as session:
            read_clock(session)

    def dispose(self) -> None:
        """Close all connections of this process."""
        engine = self._engines.pop(os.getpid(), None)
        if engine is not None:
            event.listen(engine.pool, "checkin", _close)
            engine.dispose()


def read_clock(session: Session) -> float:
    """The database's time, in seconds since the epoch."""
    return session.execute(select(now())).scalar_one()


def _close(connection: DBAPIConnection | None, _: ConnectionPoolEntry) -> None:
    """What a thread still held when its pool was closed goes back to nobody."""
    if connection is not None:
        connection.close()


def _open(engine: Engine) -> Session:
    # Statements go straight to SQL: loaded objects are refreshed by the next read, never patched in Python.
    options = {"synchronize_session": False, "populate_existing": True}
    return Session(engine, expire_on_commit=False, execution_options=options)
