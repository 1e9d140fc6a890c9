"""`Database`: read-only sessions and write transactions, with one engine per process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from sqlalchemy import Engine, event, select
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from mallorn.db.database_clock import now
from mallorn.db.engine import WRITE, create_engine, parse_url, translate_database_errors

# Write transactions take milliseconds; some queries take seconds.
ANSWER_SEC: Final = 30.0


class Database:
    """Connects to a database on first use in a process, and again after a fork.

    `session` and `transaction` raise Unavailable if the database does not answer and
    StorageFull if its disk is full. A `transaction` then stores nothing and may be run
    again. On Postgres, `answer_sec` limits each statement.

        with db.session() as session:        # reads one snapshot; writing in it is an error
            job = Jobs(session).get(job_id, owner)
        with db.transaction() as session:    # commits at the end, rolls back on any exception
            Jobs(session).pause(job_id)
    """

    def __init__(self, url: str, *, answer_sec: float | None = ANSWER_SEC) -> None:
        parse_url(url)
        self.url = url
        self._answer_sec = answer_sec
        self._engines: dict[int, Engine] = {}  # by process id

    @property
    def engine(self) -> Engine:
        """The engine of this process; connections that its parent process opened stay open."""
        pid = os.getpid()
        if pid not in self._engines:
            for inherited in self._engines.values():
                inherited.dispose(close=False)
            # If several threads create an engine at once, one is kept; none is connected yet.
            self._engines.setdefault(pid, create_engine(self.url, answer_sec=self._answer_sec))
        return self._engines[pid]

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Read one consistent snapshot, without writing; later changes need a new one."""
        engine = self.engine
        if engine.dialect.name == "postgresql":
            engine = engine.execution_options(isolation_level="REPEATABLE READ")
        with translate_database_errors(answer_sec=self._answer_sec), _open(engine) as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Read and write; commit when the block ends, roll back if it raises."""
        engine = self.engine.execution_options(**{WRITE: True})
        error_translation = translate_database_errors(engine.url.database, self._answer_sec)
        with error_translation, _open(engine) as session, session.begin():
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
        engine = self._engines.pop(os.getpid(), None)
        if engine is not None:
            event.listen(engine.pool, "checkin", _close)
            engine.dispose()


def read_clock(session: Session) -> float:
    """Return the database's time, in seconds since the epoch."""
    return session.execute(select(now())).scalar_one()


def _close(connection: DBAPIConnection | None, _: ConnectionPoolEntry) -> None:
    """Close a connection that a thread returns after its pool was disposed of."""
    if connection is not None:
        connection.close()


def _open(engine: Engine) -> Session:
    # UPDATE and DELETE do not change loaded objects in Python; the next query refreshes them.
    options = {"synchronize_session": False, "populate_existing": True}
    return Session(engine, expire_on_commit=False, execution_options=options)
