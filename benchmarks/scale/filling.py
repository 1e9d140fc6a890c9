"""A database that a year has filled, in which no job but the benchmark's own waits for work."""

from typing import Final

from sqlalchemy import text

from benchmarks.filled.rows import fill
from mallorn.db.session import Database

LIMIT_SEC: Final = 3600.0
_SETTLED: Final = (
    "UPDATE jobs SET state = 'done', finished_at = created_at WHERE state NOT IN ('done', 'failed')",
    "UPDATE rounds SET state = 'done', finished_at = created_at, started_at = created_at "
    "WHERE state IN ('queued', 'leased')",
)


def fill_and_settle(url: str, rows: int) -> None:
    """Fill an empty database with this many measurements and end all its jobs, or leave one
    that holds measurements as it is."""
    with Database(url, answer_sec=LIMIT_SEC) as database:
        with database.session() as session:
            if session.execute(text("SELECT 1 FROM measurements LIMIT 1")).first() is not None:
                return
        fill(database, rows)
        with database.transaction() as session:
            for statement in _SETTLED:
                session.execute(text(statement))
