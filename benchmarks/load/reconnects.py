"""Watchers of events that all come at once, as after a restart: when the last is served, and what each costs.

python -m benchmarks.load.reconnects [--watchers 2000] [--jobs 200] [--seconds 20] [--json FILE --label after]
"""

import argparse
import asyncio
import json
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil

from benchmarks.hosts import describe_host
from benchmarks.load.__main__ import MODEL, TARGET, Server
from benchmarks.load.rows import split
from benchmarks.load.visits import Times, submit_all
from mallorn import Client
from mallorn.core.values.event import MeasuredEvent
from mallorn.db.migrate import upgrade
from mallorn.db.repositories.job_events_and_warnings import Events
from mallorn.db.session import Database

ASK_SEC: Final = 0.2
BUSY: Final = 0.05  # of the jobs have an event a second


@dataclass
class Seen:
    """What came of all watchers."""

    served_sec: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    late_sec: list[float] = field(default_factory=list)


async def watch(port: int, job_id: str, seen: Seen) -> None:
    """Connect, and note when the first byte and each event comes."""
    began_sec = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /api/v1/jobs/{job_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        status = (await reader.readline()).split()
        seen.answers[status[1].decode() if status else "closed"] += 1
        seen.served_sec.append(time.monotonic() - began_sec)
        while line := await reader.readline():
            if line.startswith(b"data:") and b"best_us" in line:
                seen.late_sec.append(time.time() - json.loads(line[5:])["best_us"])
    except OSError as error:
        seen.answers[type(error).__name__] += 1


async def ask(port: int, until_sec: float) -> list[float]:
    """What else is asked meanwhile takes so long."""
    took: list[float] = []
    while time.monotonic() < until_sec:
        began_sec = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET /api/v1/workers HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        await reader.read()
        writer.close()
        took.append(time.monotonic() - began_sec)
        await asyncio.sleep(ASK_SEC)
    return took


async def storm(
    server: Server, database: Database, job_ids: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    """All come at once; then they wait while a few jobs go on."""
    port, seen, process = int(server.url.rpartition(":")[2]), Seen(), psutil.Process(server.process.pid)
    began, cpu = time.monotonic(), _cpu_sec(process)
    tasks = [
        asyncio.create_task(watch(port, job_ids[n % len(job_ids)], seen)) for n in range(options.watchers)
    ]
    asking = asyncio.create_task(ask(port, began + 5))
    while sum(seen.answers.values()) < options.watchers and time.monotonic() < began + 120:
        await asyncio.sleep(0.05)
    arrived_sec, arrived_cpu = time.monotonic() - began, _cpu_sec(process) - cpu
    asked = await asking
    await asyncio.sleep(2)
    quiet = await _share(process, options.seconds)
    telling = asyncio.create_task(_tell(database, job_ids, options.seconds))
    busy = await _share(process, options.seconds)
    await telling
    for task in tasks:
        task.cancel()
    return {
        "watchers": options.watchers,
        "answers": dict(seen.answers),
        "all_served_sec": round(arrived_sec, 2),
        "cpu_ms_each_to_arrive": round(1e3 * arrived_cpu / options.watchers, 2),
        "others_meanwhile_ms": round(1e3 * max(asked), 1),
        "cpu_share_quiet": round(quiet, 3),
        "cpu_us_a_watcher_and_second_quiet": round(1e6 * quiet / options.watchers, 1),
        "cpu_share_busy": round(busy, 3),
        "event_late_ms": round(1e3 * statistics.median(seen.late_sec), 1) if seen.late_sec else None,
        "events": len(seen.late_sec),
        "memory_mb": round(process.memory_info().rss / 1e6),
    }


async def _tell(database: Database, job_ids: list[str], seconds: float) -> None:
    """Some of the jobs have an event a second."""
    some = job_ids[: max(1, int(BUSY * len(job_ids)))]
    for _ in range(int(seconds)):
        began_sec = time.monotonic()
        await asyncio.to_thread(_append, database, some)
        await asyncio.sleep(max(0.0, 1 - (time.monotonic() - began_sec)))


def _append(database: Database, job_ids: list[str]) -> None:
    for job_id in job_ids:
        with database.transaction() as session:
            told = MeasuredEvent(round=1, task=0, name="t", trials=1, failures=0, best_us=time.time())
            Events(session).append(job_id, told)


async def _share(process: psutil.Process, seconds: float) -> float:
    cpu, began = _cpu_sec(process), time.monotonic()
    await asyncio.sleep(seconds)
    return (_cpu_sec(process) - cpu) / (time.monotonic() - began)


def _cpu_sec(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Storm a coordinator, and say what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--watchers", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--label", default="after")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="mallorn-load-") as folder:
        url = f"sqlite:///{folder}/mallorn.db"
        upgrade(url)
        database = Database(url)
        with Server(Path(folder), url) as server:
            with Client(server.url) as api:
                model_id = api.connection.put("/models", iter([MODEL]), len(MODEL))["id"]
            job_ids = submit_all(server.url, model_id, TARGET, options.jobs, 4, Times())
            split(database, job_ids, 1)
            told = asyncio.run(storm(server, database, job_ids, options))
        database.dispose()
    print(json.dumps(told, indent=1))
    if options.json:
        kept = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps(kept | {options.label: told | describe_host()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
