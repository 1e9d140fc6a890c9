"""Time to look up a workload's best schedule in a large dataset, and bytes per measurement.

Fills SQLite and Postgres (the tests' server) with measurements: 16 per round, 5,000 per workload, 10 %
failures, one verified schedule per 500. Reads the best schedules of random workloads and targets and
the first page of all schedules, as `GET /schedules` does, and the fastest measurements, as the finish of a
job does.

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
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.dataset_statistics import Statistics
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.repositories.trials import Trials
from mallorn.db.session import Database

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
    """Start a Postgres server with its default settings; yield its URL."""
    with Postgres() as server:
        yield server.url


@contextmanager
def sqlite() -> Iterator[str]:
    """Yield the URL of a SQLite database in a new temporary directory."""
    with tempfile.TemporaryDirectory(prefix="mallorn-sqlite-") as home:
        yield f"sqlite:///{home}/mallorn.db"


def measure(url: str, rows: int, lookups: int, seed: int) -> dict[str, Any]:
    """Fill a database, and time the reads."""
    upgrade(url)
    database = Database(url)
    try:
        filler = Filler(database, rows, seed)
        filler.prepare()
        empty_bytes = size_bytes(database)
        started = time.perf_counter()
        filler.fill()
        fill_sec = time.perf_counter() - started
        settle(database)
        places = filler.places(lookups)
        return {
            "rows": rows,
            "fill_rows_per_sec": rows / fill_sec,
            "bytes_per_row": (size_bytes(database) - empty_bytes) / rows,
            "lookups": {name: look_up(database, read, places) for name, read in READS.items()},
            "stats_sec": seconds_of(lambda: _stats(database)),
        }
    finally:
        database.dispose()


def look_up(database: Database, read: Look, places: list[Place]) -> dict[str, float]:
    """Return percentiles in ms over reads (session, query, rows); caches are not warmed."""
    times = []
    for place in places:
        started = time.perf_counter()
        with database.session() as session:
            read(session, place)
        times.append((time.perf_counter() - started) * 1000)
    return {f"p{each}_ms": float(np.percentile(times, each)) for each in (50, 95, 99)}


def size_bytes(database: Database) -> int:
    """Return the bytes of measurements and their indexes; for SQLite, of the whole file."""
    with database.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            return _scalar(connection, "SELECT pg_total_relation_size('measurements')")
        return _scalar(connection, "PRAGMA page_count") * _scalar(connection, "PRAGMA page_size")


def settle(database: Database) -> None:
    """Run the databases' own maintenance: VACUUM ANALYZE, or a checkpoint of the log."""
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
    """Run the benchmark and write its JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--lookups", type=int, default=LOOKUPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {}
    for name, open_database in {"sqlite": sqlite, "postgres": postgres}.items():
        with open_database() as url:
            results[name] = measure(url, options.rows, options.lookups, options.seed)
        print(name, json.dumps(results[name]), flush=True)
    slowest = max(each["lookups"]["schedule"]["p95_ms"] for each in results.values())
    if options.json:
        figures = {"seed": options.seed, "databases": results, "headline": slowest, "aim_ms": AIM_MS}
        options.json.write_text(json.dumps(figures | describe_host(), indent=1) + "\n")
    print(
        f"best-schedule look-up with {options.rows:,} measurements: p95 {slowest:.2f} ms (aim {AIM_MS:.0f})"
    )


if __name__ == "__main__":
    main()
