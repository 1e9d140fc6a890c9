"""How long the best schedule of a workload takes to find in a large dataset, and how many bytes a row takes.

Fills SQLite and Postgres (the server of the tests) with measurements of 16 a round and 5,000 a workload, a
tenth of them failures, a verified schedule for every 500. Asks for the best schedules of workloads and
targets at random and for the first page of all, as `GET /schedules` does, and for the fastest measurements,
as a finish does.

    python -m benchmarks.dataset --rows 1000000 --json FILE
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from benchmarks.dataset_rows import OWNER, Filler, Place
from benchmarks.hosts import describe_host
from benchmarks.postgres import Postgres
from db.migrate import upgrade
from db.repositories.dataset_statistics import Statistics
from db.repositories.schedules import Schedules
from db.repositories.trials import Trials
from db.session import Database

LOOKUPS: Final = 1000
AIM_MS: Final = 10.0
Look = Callable[[Session, Place], object]
# The first is the headline.
READS: Final[dict[str, Look]] = {
    "schedule": lambda session, at: Schedules(session).page(OWNER, workload=at.workload, target=at.target),
    "schedules": lambda session, _at: Schedules(session).page(OWNER),
    "measurements": lambda session, at: Trials(session).best(at.workload_id, at.target_id, 4),
}


@contextmanager
def postgres() -> Iterator[str]:
    """A server of its own, with its usual settings."""
    with Postgres() as server:
        yield server.url


@contextmanager
def sqlite() -> Iterator[str]:
    """A file of its own."""
    with tempfile.TemporaryDirectory(prefix="mallorn-sqlite-") as home:
        yield f"sqlite:///{home}/mallorn.db"


def measure(url: str, rows: int, lookups: int, seed: int) -> dict[str, Any]:
    """Fill a database, and time what reads it."""
    upgrade(url)
    database = Database(url)
    try:
        filler = Filler(database, rows, seed)
        filler.prepare()
        before = size_bytes(database)
        started = time.perf_counter()
        filler.fill()
        fill_sec = time.perf_counter() - started
        settle(database)
        places = filler.places(lookups)
        return {
            "rows": rows,
            "fill_rows_per_sec": rows / fill_sec,
            "bytes_per_row": (size_bytes(database) - before) / rows,
            "lookups": {name: look_up(database, read, places) for name, read in READS.items()},
            "stats_sec": seconds_of(lambda: _stats(database)),
        }
    finally:
        database.dispose()


def look_up(database: Database, read: Look, places: list[Place]) -> dict[str, float]:
    """Percentiles of a whole read: session, query, answer. Each workload's first one is cold."""
    times = []
    for place in places:
        started = time.perf_counter()
        with database.session() as session:
            read(session, place)
        times.append((time.perf_counter() - started) * 1000)
    return {f"p{each}_ms": float(np.percentile(times, each)) for each in (50, 95, 99)}


def size_bytes(database: Database) -> int:
    """What measurements and their indexes take; in SQLite, the file."""
    with database.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            return _scalar(connection, "SELECT pg_total_relation_size('measurements')")
        return _scalar(connection, "PRAGMA page_count") * _scalar(connection, "PRAGMA page_size")


def settle(database: Database) -> None:
    """What the databases do by themselves after a while: write the log back, learn what lies where."""
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        postgresql = connection.dialect.name == "postgresql"
        connection.execute(text("VACUUM ANALYZE" if postgresql else "PRAGMA wal_checkpoint(TRUNCATE)"))


def seconds_of(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _stats(database: Database) -> None:
    with database.session() as session:
        Statistics(session).of(None)


def _scalar(connection: Connection, statement: str) -> int:
    return int(connection.execute(text(statement)).scalar_one())


def main() -> None:
    """Run and write down."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=LOOKUPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {}
    for name, place in {"sqlite": sqlite, "postgres": postgres}.items():
        with place() as url:
            found[name] = measure(url, options.rows, options.lookups, options.seed)
        print(name, json.dumps(found[name]), flush=True)
    slowest = max(each["lookups"]["schedule"]["p95_ms"] for each in found.values())
    if options.json:
        figures = {"seed": options.seed, "databases": found, "headline": slowest, "aim_ms": AIM_MS}
        options.json.write_text(json.dumps(figures | describe_host(), indent=1) + "\n")
    print(
        f"best-schedule look-up with {options.rows:,} measurements: p95 {slowest:.2f} ms (aim {AIM_MS:.0f})"
    )


if __name__ == "__main__":
    main()
