"""A run's database, the simulation's clock in it, faults at statements and commits."""

import shutil
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy import Engine, event
from sqlalchemy.exc import InternalError
from sqlalchemy.orm import Session

from mallorn.db.engine import create_engine
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from tests.simulation.loom import Died, Loom

MEMORY: Final = Path("/dev/shm")
SWITCHES: Final = 0.2  # of the statements of a block, where others may run between two
RENEWED: Final = "renew"  # comes again by itself: one that is not answered tells little


NOT_YET: Final = psycopg.errors.ReadOnlySqlTransaction("the simulated database cannot be written yet")
NOTICED = True
WRITES: Final = ("INSERT", "UPDATE", "DELETE")


class Storage(ABC):
    """One database and one engine for all runs of this process: what SQLAlchemy compiled is compiled once."""

    #: Whether others get their turn between two statements of a block, and wait for its locks.
    lets_others_in = False
    words = ""  # that name it on the command line

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = create_engine(url)
        self.clock: Callable[[], float] = lambda: 0.0
        self.troubles: Troubles | None = None
        self.waits = 0  # of somebody for a lock that another held
        self.deadlocks: list[str] = []  # of this run
        self._prepare(self.engine)

    def renew(self, clock: Callable[[], float]) -> None:
        """An empty database, with this clock."""
        self.troubles = None
        self.deadlocks.clear()
        self.clock = clock
        self.empty()

    @abstractmethod
    def empty(self) -> None:
        """Take all rows away."""

    @abstractmethod
    def close(self) -> None:
        """Take all of it away."""

    @abstractmethod
    def keep(self) -> Callable[[], None]:
        """Remember all rows as they are; what comes of it brings them back, whoever is connected."""

    @abstractmethod
    def unanswered(self) -> Exception:
        """What the driver raises where the database does not answer."""

    @abstractmethod
    def read_only(self, statement: str) -> Exception:
        """What a driver raises over a Postgres that was a standby a moment ago."""

    def _prepare(self, engine: Engine) -> None:
        @event.listens_for(engine, "before_cursor_execute")
        def on_statement(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if self.troubles is not None and not statement.startswith("PRAGMA"):
                self.troubles.at_statement(statement)

        commit = engine.dialect.do_commit

        def do_commit(connection: Any) -> None:
            if self.troubles is not None:
                self.troubles.before_commit()
            commit(connection)
            if self.troubles is not None:
                self.troubles.after_commit()

        engine.dialect.do_commit = do_commit  # type: ignore[method-assign, assignment]


class SqliteStorage(Storage):
    """A migrated file in memory."""

    def __init__(self) -> None:
        self.folder = Path(
            tempfile.mkdtemp(prefix="mallorn-simulation-", dir=MEMORY if MEMORY.is_dir() else None)
        )
        self._template = self.folder / "template.db"
        self.file = self.folder / "work.db"
        upgrade(f"sqlite:///{self._template}")
        super().__init__(f"sqlite:///{self.file}")

    def empty(self) -> None:
        self.engine.dispose()
        for file in self.folder.glob("work.db*"):
            file.unlink()
        shutil.copyfile(self._template, self.file)

    def close(self) -> None:
        self.engine.dispose()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self) -> Callable[[], None]:
        kept = sqlite3.connect(":memory:")
        with closing(sqlite3.connect(self.file)) as source:
            source.backup(kept)

        def bring_back() -> None:
            with closing(sqlite3.connect(self.file)) as source:
                kept.backup(source)
            kept.close()

        return bring_back

    def read_only(self, statement: str) -> InternalError:
        """As SQLAlchemy brings it, once mallorn.db.engine has seen what it is."""
        return InternalError(statement, None, NOT_YET, connection_invalidated=NOTICED)

    def unanswered(self) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError("the simulated database does not answer")
        error.sqlite_errorname = "SQLITE_BUSY"
        return error

    def _prepare(self, engine: Engine) -> None:
        super()._prepare(engine)

        @event.listens_for(engine, "connect")
        def on_connect(connection: Any, _record: Any) -> None:
            # What mallorn.db.database_clock asks SQLite for; the rest is its own conversion, undone.
            connection.create_function("julianday", 1, lambda _when: self.clock() / 86400.0 + 2440587.5)


class Troubles:
    """What the weather does to the statements of whoever runs now."""

    def __init__(self, storage: Storage, loom: Loom) -> None:
        self._storage = storage
        self.loom = loom
        self.away_until = 0.0
        self.read_only_until = 0.0
        self.ahead_sec = 0.0  # of the loom's time, by which the database's clock is

    def at_statement(self, statement: str) -> None:
        """Raise what a driver would, or let the process die."""
        if self.loom.running is None:
            return
        process = self.loom.process
        process.check()
        self._count_down()
        if process.steps_to_error is not None:
            process.steps_to_error -= 1
            if process.steps_to_error <= 0:
                process.steps_to_error = None
                raise self._storage.unanswered()
        if self._storage.lets_others_in and self.loom.random.random() < SWITCHES:
            self.loom.step()
        if self.loom.now < self.away_until:
            raise self._storage.unanswered()
        if self.loom.now < self.read_only_until and statement.startswith(WRITES):
            raise self._storage.read_only(statement)

    def before_commit(self) -> None:
        """A process may die just before its commit."""
        if self.loom.running is not None:
            self.loom.process.check()
            self._count_down()

    def after_commit(self) -> None:
        """What a transaction noted has happened; its process may not live to hear of it, or not be told."""
        fiber = self.loom.running
        if fiber is None or not fiber.writes:
            return
        self.happened(fiber.noted)
        tells = any(note[0] != RENEWED for note in fiber.noted)
        fiber.noted = []
        self._count_down()
        process = fiber.process
        if tells and process.commits_to_silence is not None:
            process.commits_to_silence -= 1
            if process.commits_to_silence <= 0:
                process.commits_to_silence = None
                raise self._storage.unanswered()

    def happened(self, notes: list[tuple[Any, ...]]) -> None:
        """Told of what is committed."""

    def _count_down(self) -> None:
        process = self.loom.process
        if process.steps_to_death is not None:
            process.steps_to_death -= 1
            if process.steps_to_death <= 0:
                process.steps_to_death = None
                process.alive = False
                raise Died


class Answers(Troubles):
    """Troubles that tell a history."""

    def __init__(self, storage: Storage, loom: Loom, told: Callable[..., None]) -> None:
        super().__init__(storage, loom)
        self._told = told

    def happened(self, notes: list[tuple[Any, ...]]) -> None:
        for note in notes:
            self._told(*note)


class Shared(Database):
    """The one database as a process of the run sees it: others get their turn around every block."""

    def __init__(self, storage: Storage, loom: Loom) -> None:
        super().__init__(storage.url)
        self._storage = storage
        self._loom = loom

    @property
    def engine(self) -> Engine:
        return self._storage.engine

    @contextmanager
    def session(self) -> Iterator[Session]:
        self._loom.step()
        with super().session() as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        self._loom.step()
        fiber = self._loom.running
        assert fiber is not None
        fiber.writes, fiber.alone, fiber.noted = True, not self._storage.lets_others_in, []
        try:
            with super().transaction() as session:
                yield session
        finally:
            fiber.writes, fiber.alone, fiber.noted = False, False, []
        self._loom.step()

    def dispose(self) -> None:
        """It is everybody's."""
