"""Speed of the web page for a job with very many tasks: first rows, scrolling, sorting.

python -m benchmarks.page [--tasks 10000] [--rounds 2000] [--repeats 5] [--seed 0] [--json FILE]

A coordinator in a new process serves a job with this many tasks, some measured, to headless
Chromium (apt-get install chromium; pip install playwright; make page). Each repeat is a
browser context with an empty cache: milliseconds from navigation to the first paint and to the
first rows of the task table, then frames per second and the longest frame while the table
scrolls from top to end, and milliseconds of a sort. A screenshot goes to build/screenshots.
Aims: 1.5 s, 30 frames a second. The headline is the median time to the rows.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks.hosts import describe_host
from benchmarks.page_rows import fill
from benchmarks.page_visit import browser, visit
from mallorn.core.address_checks import free_port
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database

START_SEC: Final = 60.0


def main() -> None:
    args = _arguments()
    with tempfile.TemporaryDirectory(prefix="mallorn-page-") as folder:
        job_id = _prepare(Path(folder), args)
        with _coordinator(Path(folder)) as url, browser() as chromium:
            visits = [visit(chromium, f"{url}#/jobs/{job_id}") for _ in range(args.repeats)]
    middle = {name: median(times[name] for times in visits) for name in visits[0]}
    if args.json:
        arguments = {name: getattr(args, name) for name in ("tasks", "rounds", "seed")}
        raw = {"benchmark": "page", **arguments, **describe_host(), "visits": visits, "median": middle}
        args.json.write_text(json.dumps(raw | {"headline": middle["rows_ms"]}, indent=1) + "\n")
    _say(f"first paint {middle['first_paint_ms']:.0f} ms, sort {middle['sort_ms']:.0f} ms")
    _say(f"scrolling {middle['fps']:.0f} frames a second, longest frame {middle['longest_frame_ms']:.0f} ms")
    _say(
        f"milliseconds until {args.tasks} tasks are shown, median of {args.repeats}: {middle['rows_ms']:.0f}"
    )


def _prepare(folder: Path, args: argparse.Namespace) -> str:
    url = f"sqlite:///{folder}/mallorn.db"
    upgrade(url)
    database = Database(url)
    try:
        return fill(database, args.tasks, args.rounds, args.seed)
    finally:
        database.dispose()


@contextmanager
def _coordinator(folder: Path) -> Iterator[str]:
    """Run `mallorn serve` on the data directory; yield its URL."""
    port = free_port()
    environment = os.environ | {
        "MALLORN_DATA_DIR": str(folder),
        "MALLORN_DATABASE_URL": f"sqlite:///{folder}/mallorn.db",
        "MALLORN_REDIS_URL": "memory://",
    }
    command = [sys.executable, "-m", "mallorn", "serve", "--port", str(port)]
    with open(folder / "serve.log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_for(f"http://127.0.0.1:{port}/healthz", process)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.terminate()
        process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SEC
    while time.monotonic() < deadline and process.poll() is None:
        try:
            httpx.get(url).raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    sys.exit("the coordinator does not come up: mallorn serve")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
