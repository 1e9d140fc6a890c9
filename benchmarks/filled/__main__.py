"""Times of every route and statement that reads a large table, on a database that a year has filled.

python -m benchmarks.filled [--rows 1000000] [--database URL] [--json FILE --label after]

Of Postgres, from the wheel; with `--database` on a server that stays, which is filled unless it is already.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from fastapi.testclient import TestClient
from sqlalchemy import func, select, text

from benchmarks.filled.plans import listening, plan
from benchmarks.filled.reads import ROUTES, Act, Met, reads, writes
from benchmarks.filled.rows import fill
from benchmarks.hosts import describe_host
from benchmarks.postgres import Postgres
from mallorn.core.errors import MallornError
from mallorn.core.settings import Settings
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from mallorn.db.tables import Measurement
from mallorn.services.coordinator.app import create_app

REPEATS: Final = 5
LONG_MS: Final = 2_000.0  # what takes longer is asked once
LIMIT_SEC: Final = 300.0
EXPLAINED: Final = 2  # statements of one name whose plans are told: those that took longest
Figures = dict[str, dict[str, Any]]


def main() -> None:
    """Fill, ask, and say what the answers took."""
    options = _arguments()
    with ExitStack() as stack:
        url = options.database or stack.enter_context(Postgres()).url
        began_sec = time.perf_counter()
        upgrade(url)
        database = Database(url, answer_sec=LIMIT_SEC)
        stack.callback(database.dispose)
        upgraded_sec = round(time.perf_counter() - began_sec, 1)
        filled_sec, counted_sec = _filled(database, options.rows), _counted(database)
        told: dict[str, Any] = {
            "rows": _count(database),
            "filled_sec": filled_sec,
            "upgraded_sec": upgraded_sec,
            "counted_sec": counted_sec,
            "megabytes": _sizes(database),
        }
        with database.session() as session:
            met = Met.of(session)
        told["statements"] = {name: _timed(database, act) for name, act in reads(met).items()}
        told["statements"] |= {name: _timed(database, act, writes=True) for name, act in writes(met).items()}
        told["routes"] = _routes(url, met)
    for name, figures in (told["statements"] | told["routes"]).items():
        print(
            f"{name:40} {figures['ms']:9.1f} ms   first {figures['first_ms']:9.1f}   "
            f"{figures.get('error', '')}"
        )
        for steps in figures.get("plans", ()):
            print(" " * 43 + "; ".join(steps))
    if options.json:
        _keep(options.json, options.label, told)


def _keep(file: Path, label: str, told: dict[str, Any]) -> None:
    """Beside what was kept under other labels."""
    kept = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(kept | {label: told | describe_host()}, indent=1) + "\n")


def _filled(database: Database, rows: int) -> float:
    with database.session() as session:
        if session.scalar(select(Measurement.id).limit(1)) is not None:
            return 0.0
    began_sec = time.perf_counter()
    fill(database, rows)
    return round(time.perf_counter() - began_sec, 1)


def _counted(database: Database) -> float:
    """What control does a little of every minute; seconds. Versions before had no counts."""
    began_sec = time.perf_counter()
    with suppress(ImportError):
        from mallorn.db.repositories.dataset_statistics import Counts

        while True:
            with database.transaction() as session:
                if not Counts(session).count_new_rows():
                    break
    return round(time.perf_counter() - began_sec, 1)


def _count(database: Database) -> int:
    with database.session() as session:
        return session.scalar(select(func.count()).select_from(Measurement)) or 0


def _sizes(database: Database) -> dict[str, float]:
    query = "SELECT relname, pg_relation_size(oid) / 1e6 FROM pg_class WHERE relkind IN ('r', 'i')"
    with database.session() as session:
        rows = session.execute(text(f"{query} AND pg_relation_size(oid) > 1e6 ORDER BY 2 DESC"))
        return {name: round(float(megabytes), 1) for name, megabytes in rows}


def _timed(database: Database, act: Act, *, writes: bool = False) -> dict[str, Any]:
    with listening(database.engine) as heard:
        figures = _median(lambda: _once(database, act, writes=writes))
    with database.transaction() as session:
        slowest = sorted(heard, key=lambda one: -one.sec)
        distinct = list({one.sql: one for one in reversed(slowest)}.values())[::-1][:EXPLAINED]
        plans = [plan(session, one) for one in distinct]
        session.rollback()
    return figures | {"plans": [steps for steps in plans if steps]}


def _once(database: Database, act: Act, *, writes: bool) -> None:
    with database.transaction() if writes else database.session() as session:
        act(session)
        session.rollback()


def _median(act: Callable[[], None]) -> dict[str, Any]:
    """Milliseconds of the first time, and of several; what went wrong."""
    took: list[float] = []
    while not took or (len(took) <= REPEATS and took[-1] < LONG_MS):
        began_sec = time.perf_counter()
        try:
            act()
        except MallornError as error:
            return {"first_ms": _since(began_sec), "ms": _since(began_sec), "error": error.message[:120]}
        took.append(_since(began_sec))
    return {"first_ms": took[0], "ms": round(statistics.median(took[1:] or took), 2)}


def _since(began_sec: float) -> float:
    return round(1e3 * (time.perf_counter() - began_sec), 2)


def _routes(url: str, met: Met) -> Figures:
    with TemporaryDirectory(prefix="mallorn-filled-") as folder:
        settings = Settings(database_url=url, redis_url="memory://", data_dir=Path(folder))
        with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
            paths = {path: path.format(job=met.job.id) for path in ROUTES}
            return {f"GET {name}": _median(partial(_got, client, path)) for name, path in paths.items()}


def _got(client: TestClient, path: str) -> None:
    answer = client.get(f"/api/v1{path}")
    if answer.status_code != 200:
        raise MallornError(f"{answer.status_code}: {answer.text}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--database", default="", help="the URL of a Postgres; default: one of its own")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--label", default="after")
    return parser.parse_args()


if __name__ == "__main__":
    main()
