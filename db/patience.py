"""Connections to Postgres that wait for an answer so long and no longer.

A server that is stopped, or a host that is gone, answers nothing and closes nothing: only a limit on our side
ends such a wait. What it was doing is unknown then, so its connection is closed with it.
"""

from collections.abc import Generator
from typing import Any, ClassVar, TypeVar

import psycopg
from psycopg.errors import _WaitTimeout
from sqlalchemy import Engine, event

R = TypeVar("R")


class PatientConnection(psycopg.Connection[Any]):
    """Every exchange with the server ends within `patience_sec`, or raises OperationalError."""

    patience_sec: ClassVar[float]

    def wait(self, gen: Generator[Any, Any, R], interval: float = 0.1, timeout: float | None = None) -> R:
        """What an exchange brings."""
        limit_sec = self.patience_sec if timeout is None else timeout
        try:
            return super().wait(gen, interval, limit_sec)
        except _WaitTimeout:
            if timeout is not None:
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {limit_sec:g} s") from None


def be_patient(engine: Engine, patience_sec: float) -> None:
    """Let an engine connect with such connections."""
    kind: type[PatientConnection] = type("Connection", (PatientConnection,), {"patience_sec": patience_sec})

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, args: Any, options: Any) -> Any:
        return kind.connect(*args, **options)
