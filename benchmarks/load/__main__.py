"""How a coordinator answers while much goes on: jobs of many tasks, devices that tell, watchers that wait.

python -m benchmarks.load [--jobs 200] [--tasks 50] [--devices 50] [--watchers 100] [--minutes 30] [--json F]

Coordinator, database and HTTP are real; imports and devices are made up: each device commits a round of eight
trials every few seconds, through the product's own queries, and tells the job's events.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, Final

import psutil

from benchmarks.hosts import describe_host
from benchmarks.load.rows import split
from benchmarks.load.visits import Times, begin, submit_all, visit, watch
from mallorn import Client
from mallorn.core.address_checks import free_port
from mallorn.core.errors import MallornError
from mallorn.core.installation import python_path
from mallorn.db.migrate import upgrade
from mallorn.db.session import Database

TARGET: Final = '{"kind":"llvm","num-cores":2}'
MODEL: Final = b"nobody imports it"
START_SEC: Final = 60.0
LOOK_SEC: Final = 5.0
SUBMIT_AT_ONCE: Final = 8


def main() -> None:
    """Load, ask, and say what the answers took."""
    options = _arguments()
    with TemporaryDirectory(prefix="mallorn-load-") as folder, ExitStack() as stack:
        database_url = options.database or f"sqlite:///{folder}/mallorn.db"
        upgrade(database_url)
        server = stack.enter_context(Server(Path(folder), database_url))
        told = _loaded(options, server, database_url)
    for what, figures in told["seconds"].items():
        print(
            f"{what:7} {figures['count']:7} answers   p50 {1e3 * figures['p50']:7.1f} ms   "
            f"p95 {1e3 * figures['p95']:7.1f} ms   slowest {1e3 * figures['max']:7.0f} ms"
        )
    first, *_, last = told["memory_mb"]
    print(f"memory of the coordinator: {first:.0f} MB at first, {last:.0f} MB at last")
    for words in sorted(set(told["errors"]))[:10]:
        print(f"error: {words}")
    print(f"errors: {len(told['errors'])}")
    if options.json:
        options.json.write_text(json.dumps(told | describe_host(), indent=1) + "\n")


class Server:
    """`mallorn serve` with a folder of its own and no broker to speak of."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self._folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        port = self.url.rpartition(":")[2]
        own = {
            "MALLORN_DATA_DIR": str(folder),
            "MALLORN_DATABASE_URL": database_url,
            "MALLORN_REDIS_URL": "memory://",
            "PYTHONPATH": python_path(),
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLORN_")}
        command = [sys.executable, "-P", "-m", "mallorn", "serve", "--port", port]
        with (folder / "serve.log").open("wb") as log:
            self.process = subprocess.Popen(command, env=kept | own, stdout=log, stderr=log)

    def __enter__(self) -> "Server":
        until = time.monotonic() + START_SEC
        while time.monotonic() < until:
            try:
                with Client(self.url) as api:
                    api.newest_job()
                return self
            except MallornError:
                time.sleep(0.2)
        raise SystemExit((self._folder / "serve.log").read_text())

    def __exit__(self, *_error: object) -> None:
        self.process.terminate()
        self.process.wait()


def _loaded(options: argparse.Namespace, server: Server, database_url: str) -> dict[str, Any]:
    times, over, seconds = Times(), Event(), 60 * options.minutes
    with Client(server.url) as api:
        model_id = api.connection.put("/models", iter([MODEL]), len(MODEL))["id"]
    job_ids = submit_all(server.url, model_id, TARGET, options.jobs, SUBMIT_AT_ONCE, times)
    database = Database(database_url)
    split(database, job_ids, options.tasks)
    devices = _devices(database_url, options, seconds, job_ids)
    begin(options.watchers, lambda at: watch(server.url, job_ids[at % len(job_ids)], times, over))
    begin(options.visitors, lambda at: visit(server.url, job_ids, times, over, at, options.pause_sec))
    memory = _memory(server.process.pid, seconds)
    over.set()
    failed = int(devices.communicate()[0] or 0)
    times.errors += ["device: a round could not be told of"] * failed
    database.dispose()
    return {
        "asked": {name: value for name, value in vars(options).items() if name not in ("json", "database")},
        "database": database_url.partition(":")[0],
        "seconds": {what: _figures(found) for what, found in sorted(times.seconds.items())},
        "memory_mb": memory,
        "errors": times.errors,
        "headline": len(times.errors),
    }


def _devices(
    url: str, options: argparse.Namespace, seconds: float, job_ids: list[str]
) -> "subprocess.Popen[str]":
    words = [url, str(options.devices), str(options.period_sec), str(seconds)]
    command = [sys.executable, "-m", "benchmarks.load.rows", *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write("\n".join(job_ids))
    process.stdin.close()
    process.stdin = None
    return process


def _memory(pid: int, seconds: float) -> list[float]:
    """Megabytes that a process holds, again and again."""
    until, found, process = time.monotonic() + seconds, [], psutil.Process(pid)
    while time.monotonic() < until:
        time.sleep(min(LOOK_SEC, seconds))
        found.append(round(process.memory_info().rss / 1e6, 1))
    return found


def _figures(found: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(found, n=100) if len(found) > 1 else found * 99
    return {"count": len(found), "p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(found)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=50, help="of each job")
    parser.add_argument("--devices", type=int, default=50)
    parser.add_argument("--period-sec", type=float, default=5.0, help="from one round to the next")
    parser.add_argument("--watchers", type=int, default=100, help="streams of events")
    parser.add_argument("--visitors", type=int, default=10)
    parser.add_argument("--pause-sec", type=float, default=2.0, help="between a visitor's looks, on average")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--database", default="", help="its URL; default: a new SQLite file")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
