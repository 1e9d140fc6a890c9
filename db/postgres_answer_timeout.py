"""Connections to Postgres that wait only so long for an answer.

A server that is stopped, or behind a network that swallows packets, keeps its sockets alive: the kernel
confirms what is sent, so neither keepalives nor `tcp_user_timeout` notice. Only the client's own clock does.
"""

import time
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import Engine, event

T = TypeVar("T")
# The server ends a statement at its limit and lets its locks go; the client waits longer for word of it.
GRACE_SEC: Final = 1.0
LOOK_EVERY_SEC: Final = 0.1


class AnsweringConnection(psycopg.Connection[Any]):
    """Closes itself, with an OperationalError, when the server has not answered in time."""

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


def limit_answers(engine: Engine, answer_sec: float) -> None:
    """Let no statement of an engine for Postgres last longer, whether the server is slow or silent."""

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, words: tuple[Any, ...], named: dict[str, Any]) -> Any:
        connection = AnsweringConnection.connect(*words, **named)
        connection.limit_sec = answer_sec + GRACE_SEC
        return connection
