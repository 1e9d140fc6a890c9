"""A real Postgres as a run's database: others run between two statements, and wait for each other's locks."""

import selectors
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import DeadlockDetected
from psycopg.waiting import Ready
from sqlalchemy import Engine, Integer, event, make_url

from benchmarks.postgres import Postgres
from mallorn.db.migrate import upgrade
from mallorn.db.tables import Base
from tests.simulation.loom import Loom
from tests.simulation.storage import NOT_YET, Storage

T = TypeVar("T")
ANSWER_SEC: Final = 30.0  # of the simulation's time: what the product gives a statement
LOOK_SEC: Final = 0.002  # of real time: by then most statements are answered
WAIT_SEC: Final = 0.05  # of the simulation's time, until who waits for a lock looks again
BLOCKED: Final = "SELECT cardinality(pg_blocking_pids(%s)) > 0"


OURS: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mallorn'"


class PostgresStorage(Storage):
    """A server of its own, with one migrated database."""

    lets_others_in = True
    words = " --database postgres"

    def __init__(self) -> None:
        self._server = Postgres().__enter__()
        self._admin = psycopg.connect(self._server.url, autocommit=True)
        for setting in ("fsync = off", "deadlock_timeout = '50ms'", "autovacuum = off"):
            self._admin.execute(f"ALTER SYSTEM SET {setting}")
        self._admin.execute("SELECT pg_reload_conf()")
        url = make_url(self._server.url).set(drivername="postgresql+psycopg")
        upgrade(address := url.render_as_string(hide_password=False))
        super().__init__(address)
        self.engine.pool._max_overflow = -1  # type: ignore[attr-defined]  # nobody waits in real time

    def empty(self) -> None:
        self.engine.dispose()
        self._admin.execute(OURS)
        tables = ", ".join(Base.metadata.tables)
        self._admin.execute(f"TRUNCATE {tables} RESTART IDENTITY")

    def keep(self) -> Callable[[], None]:
        kept = {name: self._copied_out(name) for name in Base.metadata.tables}

        def bring_back() -> None:
            self._admin.execute(OURS)
            with self._admin.transaction():
                self._admin.execute("SET LOCAL session_replication_role = replica")  # no foreign keys
                self._admin.execute(f"TRUNCATE {', '.join(kept)} RESTART IDENTITY")
                for name, rows in kept.items():
                    self._copied_in(name, rows)

        return bring_back

    def _copied_out(self, table: str) -> bytes:
        with self._admin.cursor().copy(f"COPY {table} TO STDOUT") as out:
            return b"".join(bytes(part) for part in out)

    def _copied_in(self, table: str, rows: bytes) -> None:
        with self._admin.cursor().copy(f"COPY {table} FROM STDIN") as into:
            into.write(rows)
        key = Base.metadata.tables[table].columns.get("id")
        if key is not None and isinstance(key.type, Integer):
            numbers = f"pg_get_serial_sequence('{table}', 'id')"
            highest = f"(SELECT coalesce(max(id), 0) + 1 FROM {table})"
            self._admin.execute(f"SELECT setval({numbers}, {highest}, false)")

    def close(self) -> None:
        self.engine.dispose()
        self._admin.close()
        self._server.__exit__(None, None, None)

    def read_only(self, statement: str) -> psycopg.Error:
        return NOT_YET

    def unanswered(self) -> psycopg.OperationalError:
        return psycopg.OperationalError("the simulated database does not answer")

    def blocked(self, pid: int) -> bool:
        """Whether the server lets this one wait for somebody's lock."""
        return bool(self._admin.execute(BLOCKED, (pid,)).fetchone() == (True,))

    @property
    def loom(self) -> Loom | None:
        return None if self.troubles is None else self.troubles.loom

    def _prepare(self, engine: Engine) -> None:
        super()._prepare(engine)

        @event.listens_for(engine, "before_cursor_execute", retval=True)
        def on_clock(
            _connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any
        ) -> tuple[str, Any]:
            # What mallorn.db.database_clock asks Postgres for.
            return statement.replace("clock_timestamp()", f"to_timestamp({self.clock():.6f})"), parameters

        @event.listens_for(engine, "do_connect")
        def connect(_dialect: Any, _record: Any, words: tuple[Any, ...], named: dict[str, Any]) -> Any:
            connection = TakesTurns.connect(*words, **named)
            connection.storage = self
            return connection


class TakesTurns(psycopg.Connection[Any]):
    """While it waits for a lock its fiber is put aside; after so long its statement is ended."""

    storage: PostgresStorage | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.0, timeout: float | None = None) -> T:
        """What psycopg waits with, for every statement, commit and rollback."""
        loom = None if self.storage is None else self.storage.loom
        if loom is None or loom.running is None:
            return super().wait(gen)
        try:
            wanted, until = next(gen), loom.now + ANSWER_SEC
            while True:
                if ready := self._look(wanted):
                    wanted = gen.send(Ready(ready))
                else:
                    gen.send(Ready.NONE)
                    self._give_way(loom, until)
        except StopIteration as answer:
            return answer.value  # type: ignore[no-any-return]
        except DeadlockDetected as error:
            self.storage.deadlocks.append(str(error))
            raise

    def _look(self, wanted: int) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(self.pgconn.socket, wanted)
            found = selector.select(LOOK_SEC)
        return found[0][1] if found else 0

    def _give_way(self, loom: Loom, until: float) -> None:
        if self.storage is not None and self.storage.blocked(self.info.backend_pid):
            self.storage.waits += 1
            loom.sleep(WAIT_SEC)
            if loom.now > until:
                self.cancel()
