"""Candidates a second by devices, and what limits them: real processes, simulated devices that sleep.

python -m benchmarks.scale [--devices 1,4,16,64] [--candidate-sec 0,0.5] [--filled ROWS] [--json FILE]

Each cell runs Postgres, Valkey, a tracker, a coordinator, control and workers as real processes, counts
their statements, messages and processor time in a window after a warm-up, and names the bottleneck.

Each cell has an empty database of its own. With --filled all cells use one database that has ROWS
measurements: it is filled first, unless --database names one that holds measurements already.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import ceil
from pathlib import Path
from typing import Any, Final

import psycopg
from sqlalchemy import make_url

from benchmarks.hosts import describe_host
from benchmarks.postgres import Postgres
from benchmarks.scale.cell import Cell, measure
from benchmarks.scale.filling import fill_and_settle
from benchmarks.scale.rows import matrix_product, target_texts
from benchmarks.scale.verdict import table
from mallorn.core.states import JobState
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database
from mallorn.workers.process.places import MOST_PLACES

DEVICES_EACH: Final = 16  # of a worker by default, unless there are as many workers as processors
CONNECTIONS: Final = 1000
TUNING: Final = str(JobState.TUNING)


def main() -> None:
    """Measure the cells one after another; print a table and what took longest."""
    options = parse_arguments()
    cells: list[dict[str, Any]] = []
    raw: dict[str, Any] = {"benchmark": "scale", **describe_host(), "cells": cells}
    with ExitStack() as stack:
        server = options.database or _start_postgres(stack)
        with psycopg.connect(server) as connection:
            raw["versions"]["postgres"] = connection.info.parameter_status("server_version")
        database_url = server
        if options.filled:
            began_sec = time.monotonic()
            upgrade(server)
            with Database(server, answer_sec=None) as database:
                texts = target_texts(options.targets)
                fill_and_settle(database, matrix_product(), texts, options.filled)
            raw["filled"] = {"rows": options.filled, "seconds": time.monotonic() - began_sec}
        for number, cell in enumerate(cells_of(options)):
            if not options.filled:
                database_url = _create_database(server, f"mallorn_scale_{number}")
                upgrade(database_url)
            cells.append(measure(cell, database_url))
            print("\n".join(table(cells)[:: len(cells)]), flush=True)
            if others := {words: count for words, count in cells[-1]["jobs"].items() if words != TUNING}:
                print(f"jobs that do not tune: {others}")
            if options.json:
                options.json.write_text(json.dumps(raw | {"headline": _headline(cells)}, indent=1) + "\n")
    print("", *table(cells), sep="\n")
    for row in cells[-1]["slowest_statements"] if cells else ():
        print(f"{row['sec']:8.2f} s {row['count']:7} times  {row['kind']:12} {row['statement']}")
    print(f"headline: {_headline(cells):.1f} candidates a second")


def _headline(cells: list[dict[str, Any]]) -> float:
    """Return the most candidates a second of all cells."""
    return max((float(cell["candidates_per_sec"]) for cell in cells), default=0.0)


def cells_of(options: argparse.Namespace) -> Iterator[Cell]:
    """Yield the cells that the options name, with workers by the number of devices."""
    for candidate_sec in options.candidate_sec:
        for devices in options.devices:
            usual = max(ceil(devices / MOST_PLACES), min(ceil(devices / DEVICES_EACH), os.cpu_count() or 1))
            yield Cell(
                devices=devices,
                candidate_sec=candidate_sec,
                targets=options.targets,
                tasks=options.tasks,
                workers=options.workers or usual,
                controls=options.controls,
                warm_up_sec=options.warm_up_sec,
                window_sec=options.window_sec,
                is_filled=bool(options.filled),
            )


def _start_postgres(stack: ExitStack) -> str:
    """Start a server that accepts as many connections as many workers need; return its URL."""
    server = stack.enter_context(Postgres())
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET max_connections = {CONNECTIONS}")
    server.restart("fast")
    return server.url


def _create_database(server: str, name: str) -> str:
    """Create an empty database in place of that of an earlier run; return its URL."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
    return make_url(server).set(database=name).render_as_string(hide_password=False)


def _list_of(kind: type[int] | type[float]) -> Any:
    return lambda text: [kind(word) for word in text.split(",")]


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line, or of these words."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--devices", type=_list_of(int), default=[1, 4, 16, 64], help="such as 1,4,16")
    parser.add_argument("--candidate-sec", type=_list_of(float), default=[0.0, 0.5], help="such as 0,0.5,4")
    parser.add_argument("--targets", type=int, default=1, help="different targets of the devices")
    parser.add_argument("--tasks", type=int, default=50, help="of each job")
    parser.add_argument("--workers", type=int, default=0, help="worker processes; 0: by the devices")
    parser.add_argument("--controls", type=int, default=1, help="control processes")
    parser.add_argument("--warm-up-sec", type=float, default=20.0)
    parser.add_argument("--window-sec", type=float, default=40.0)
    parser.add_argument(
        "--filled",
        type=int,
        default=0,
        help="measurements that the database gets first, unless it holds some",
    )
    parser.add_argument("--database", default="", help="URL of a Postgres; default: one of its own")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    return parser.parse_args(words)


if __name__ == "__main__":
    main()
