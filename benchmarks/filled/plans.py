"""What Postgres means to do for the statements that a block runs."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

LARGE: Final = ("measurements", "rounds", "events", "held_work")


@dataclass(slots=True)
class Heard:
    """A statement, and how long its answer took to begin."""

    sql: str
    parameters: Any
    sec: float


@contextmanager
def listening(engine: Engine) -> Iterator[list[Heard]]:
    """All statements of an engine while the block lasts."""
    heard: list[Heard] = []

    def before(_connection: Any, _cursor: Any, sql: str, parameters: Any, *_rest: Any) -> None:
        heard.append(Heard(sql, parameters, -time.perf_counter()))

    def after(*_all: Any) -> None:
        heard[-1].sec += time.perf_counter()

    event.listen(engine, "before_cursor_execute", before)
    event.listen(engine, "after_cursor_execute", after)
    try:
        yield heard
    finally:
        event.remove(engine, "before_cursor_execute", before)
        event.remove(engine, "after_cursor_execute", after)


def plan(session: Session, statement: Heard) -> list[str]:
    """How the large tables are read: by which index, or `Seq Scan` for a walk through all of one.

    `from its end`: row after row of an index, until there are enough.
    """
    if isinstance(statement.parameters, list) or not statement.sql.startswith(
        ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
    ):
        return []
    explained = f"EXPLAIN (FORMAT JSON) {statement.sql}"
    told = session.connection().exec_driver_sql(explained, statement.parameters).scalar_one()
    top = (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]
    return list(dict.fromkeys(_steps(top)))


def _steps(node: dict[str, Any]) -> Iterator[str]:
    table, index = node.get("Relation Name", ""), node.get("Index Name", "")
    if index.startswith("ix_rounds") or table in LARGE or any(name in index for name in LARGE):
        how = f"{node['Node Type']} {table}".strip()
        walks = index and "Index Cond" not in node
        yield f"{how} by {index}{' from its end' if walks else ''}" if index else how
    for child in node.get("Plans", ()):
        yield from _steps(child)
