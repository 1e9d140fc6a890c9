"""Measures one cell: so many devices, seconds a candidate, and workers."""

import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, Final

import psutil

from benchmarks.load.visits import Times, begin, watch
from benchmarks.scale.filling import most_measured_workloads
from benchmarks.scale.launch import set_mark
from benchmarks.scale.measurer import count_begun_sessions, read_sessions
from benchmarks.scale.rows import (
    add_devices,
    add_job,
    job_options,
    matrix_product,
    new_workloads,
    target_texts,
)
from benchmarks.scale.sampling import (
    PostgresSampler,
    host_busy_sec,
    memory_mib,
    postgres_processes,
    processor_sec,
    read_database_counters,
    redis_calls,
)
from benchmarks.scale.stack import Stack
from benchmarks.scale.verdict import Load, verdict
from mallorn.core.errors import Conflict
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.workers import Workers
from mallorn.db.session import Database
from mallorn.db.tables import Job

FIRST_SEC: Final = 240.0
COUNTERS_SEC: Final = 30.0
SLOWEST: Final = 10
START, END = "start", "end"


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured: devices, jobs for them, and `workers`, which are processes."""

    devices: int
    candidate_sec: float
    targets: int
    tasks: int
    workers: int
    controls: int
    warm_up_sec: float
    window_sec: float
    is_filled: bool  # whether jobs tune workloads that have a year's history

    @property
    def jobs_per_target(self) -> int:
        """Jobs that have at least one and a half tasks for each device."""
        return max(1, ceil(1.5 * self.devices / self.targets / self.tasks))


@dataclass(frozen=True, slots=True)
class Moment:
    """Counters at one moment, whose differences are a window's figures."""

    at_sec: float
    processor: Mapping[str, float]
    redis: Mapping[str, int]
    database: Mapping[str, float]
    host_sec: float


def measure(cell: Cell, database_url: str) -> dict[str, Any]:
    """Start a service on a migrated database, measure it after a warm-up, and return the figures."""
    texts = target_texts(cell.targets)
    with TemporaryDirectory(prefix="scale-") as name, Database(database_url) as database:
        add_devices(database, texts, cell.devices)
        ids = [*_add_jobs(cell, database, texts)]
        with Stack(Path(name) / "s", database_url, texts, cell.devices) as service:
            window = _measure_window(cell, service, database_url, ids)
        # Workers log a session with a device at its end, so that all are logged now.
        sessions = read_sessions(service.marks)
        with database.transaction() as session:
            states = Counter(_describe_state(Jobs(session).get(job_id, None)) for job_id in ids)
            for job_id in ids:
                with suppress(Conflict):  # it ended
                    Jobs(session).cancel(job_id, None)
            places = sum(row.info.width for row in Workers(session).list())
    return _figures(cell, window, sessions, places) | {"jobs": dict(states)}


def _describe_state(job: Job) -> str:
    """Return a job's state, and why it waits or ended: a cell counts only if all of them tune."""
    return " ".join(filter(None, (job.state, job.waiting_because, job.ended_because, job.tuning_ended)))


def _add_jobs(cell: Cell, database: Database, targets: Sequence[str]) -> Iterator[str]:
    program, jobs = matrix_product(), cell.jobs_per_target
    for target in targets:
        if cell.is_filled:
            workloads = most_measured_workloads(database, target, jobs * cell.tasks)
        else:
            workloads = new_workloads(database, program, jobs * cell.tasks)
        for number in range(jobs):
            own = workloads[number * cell.tasks : (number + 1) * cell.tasks]
            yield add_job(database, target, own, job_options(number, cell.candidate_sec))


@dataclass(frozen=True, slots=True)
class Window:
    """What was counted and sampled while a service was measured."""

    first: Moment
    last: Moment
    counters: Mapping[str, Mapping[str, Any]]  # by kind of process
    sampler: PostgresSampler
    memory: Mapping[str, Mapping[str, float]]


def _measure_window(cell: Cell, service: Stack, database_url: str, job_ids: Sequence[str]) -> Window:
    with _watching(service.url, job_ids):
        service.start_workers(cell.workers)
        service.start_controls(cell.controls)
        _await_candidates(service, cell.devices)
        _sleep(service, cell.warm_up_sec)
        with PostgresSampler(database_url) as sampler:
            set_mark(service.marks, START)
            first = _read_moment(service, database_url, sampler)
            sampler.reset()
            _sleep(service, cell.window_sec)
            last = _read_moment(service, database_url, sampler)
            set_mark(service.marks, END)
            memory = memory_mib(service.tree() | {"postgres": postgres_processes(database_url, sampler.pid)})
        return Window(first, last, _read_counters(service), sampler, memory)


@contextmanager
def _watching(url: str, job_ids: Sequence[str]) -> Iterator[None]:
    """Follow the events of each job during the block, as a user's terminal does."""
    over = Event()
    begin(len(job_ids), lambda number: watch(url, job_ids[number], Times(), over))
    yield
    over.set()


def _await_candidates(service: Stack, devices: int) -> None:
    """Wait until as many sessions began as there are devices, or for FIRST_SEC."""
    deadline_sec = time.monotonic() + FIRST_SEC
    while count_begun_sessions(service.marks) < devices and time.monotonic() < deadline_sec:
        _sleep(service, 0.5)
    if not count_begun_sessions(service.marks):
        raise SystemExit(f"no worker measured anything within {FIRST_SEC:.0f} s; see {service.logs}")


def _sleep(service: Stack, seconds: float) -> None:
    service.check_alive()
    time.sleep(seconds)
    service.check_alive()


def _read_moment(service: Stack, database_url: str, sampler: PostgresSampler) -> Moment:
    tree = service.tree() | {"postgres": postgres_processes(database_url, sampler.pid)}
    return Moment(
        time.monotonic(),
        processor_sec(tree),
        redis_calls(service.redis()),
        read_database_counters(database_url),
        host_busy_sec(),
    )


def _read_counters(service: Stack) -> dict[str, dict[str, Any]]:
    """Return what the processes counted between the two marks, summed by kind."""
    firsts = {path.name.split(".")[0]: path for path in service.marks.glob(f"*.{START}.counters")}
    deadline_sec = time.monotonic() + COUNTERS_SEC
    while len(lasts := [*service.marks.glob(f"*.{END}.counters")]) < len(firsts):
        if time.monotonic() > deadline_sec:
            raise SystemExit(f"some processes did not write what they counted; see {service.logs}")
        time.sleep(0.1)
    sums: dict[str, dict[str, Any]] = {}
    for path in lasts:
        first = json.loads(firsts[path.name.split(".")[0]].read_text())
        last = json.loads(path.read_text())
        new = {"counts": Counter(), "busy_sec": Counter(), "statements": defaultdict(Counter)}
        kind = sums.setdefault(last["kind"], new)
        for name in ("counts", "busy_sec"):
            kind[name].update({key: n - first[name].get(key, 0) for key, n in last[name].items()})
        for text, (count, sec) in last["statements"].items():
            old_count, old_sec = first["statements"].get(text, (0, 0.0))
            kind["statements"][text].update({"count": count - old_count, "sec": sec - old_sec})
    return sums


def _figures(
    cell: Cell, window: Window, sessions: Sequence[Mapping[str, Any]], places: int
) -> dict[str, Any]:
    first, last, sampler = window.first, window.last, window.sampler
    seconds = last.at_sec - first.at_sec
    spans = [span for session in sessions for span in session["spans"]]
    candidates = sum(first.at_sec < end <= last.at_sec for _, end in spans)
    each = max(1, candidates)
    idle_ms = sorted(1e3 * sec for sec in idle_seconds(sessions, first.at_sec, last.at_sec))
    counted = {kind: rows["counts"] for kind, rows in window.counters.items()}
    statements = merge_statements(window.counters)
    processor = {kind: sec - first.processor.get(kind, 0.0) for kind, sec in last.processor.items()}
    redis = {name: count - first.redis.get(name, 0) for name, count in last.redis.items()}
    # What reading the counters itself took at both ends.
    redis.pop("info", None)
    database = {name: value - first.database[name] for name, value in last.database.items()}
    database["commits"] -= sampler.own_transactions
    busy_sec = {kind: sum(rows["busy_sec"].values()) for kind, rows in window.counters.items()}
    open_rounds = statistics.fmean(sum(row.values()) for row in sampler.open_rounds or [{"queued": 0}])
    processors = psutil.cpu_count() or 1
    load = Load(
        devices=candidates * cell.candidate_sec / seconds / cell.devices,
        processors=(last.host_sec - first.host_sec) / seconds / processors,
        workers=busy_sec.get("worker", 0.0) / seconds / max(1, places),
        control=busy_sec.get("control", 0.0) / seconds / cell.controls,
        lock_waits=sampler.lock_wait_sec / seconds / max(1, places),
        open_rounds=open_rounds / cell.devices,
    )
    return {
        **asdict(cell),
        "places": places,
        "seconds": seconds,
        "candidates": candidates,
        "candidates_per_sec": candidates / seconds,
        "share_of_ideal": load.devices if cell.candidate_sec else None,
        "processor_ms_per_candidate": {kind: 1e3 * sec / each for kind, sec in processor.items()},
        "statements_per_candidate": sum(row["count"] for row in statements) / each,
        "statements_by_kind": {
            kind: sum(row["count"] for row in rows["statements"].values()) / each
            for kind, rows in window.counters.items()
        },
        "slowest_statements": statements[:SLOWEST],
        "counts": {kind: dict(counts) for kind, counts in counted.items()},
        "transactions_per_candidate": sum(counts["begin"] for counts in counted.values()) / each,
        "commits_per_candidate": sum(counts["commit"] for counts in counted.values()) / each,
        "postgres": database,
        "wal_bytes_per_candidate": database["wal_bytes"] / each,
        "redis_commands_per_candidate": sum(redis.values()) / each,
        "redis_commands": redis,
        "messages_per_candidate": redis.get("lpush", 0) / each,
        "lock_wait_sec": sampler.lock_wait_sec,
        "postgres_active_sec": sampler.active_sec,
        "connections": max(sampler.totals, default=0),
        "connections_by_kind": dict(sampler.connections),
        "memory": window.memory,
        "idle_median_ms": statistics.median(idle_ms) if idle_ms else None,
        "idle_p90_ms": idle_ms[int(0.9 * len(idle_ms))] if idle_ms else None,
        "control_busy": load.control,
        "processors_busy": load.processors,
        "processors_of_others": load.processors - sum(processor.values()) / seconds / processors,
        "load": asdict(load),
        "verdict": verdict(load),
    }


def idle_seconds(
    sessions: Sequence[Mapping[str, Any]], since_sec: float, until_sec: float
) -> Iterator[float]:
    """Yield how long each device was free before a session whose first candidate began then."""
    by_device: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for session in sessions:
        if session["spans"]:
            by_device[session["device"]].append(session)
    for own_sessions in by_device.values():
        own_sessions.sort(key=lambda session: float(session["session"][0]))
        for before, after in pairwise(own_sessions):
            first_sec = after["spans"][0][0]
            if since_sec <= first_sec < until_sec:
                yield max(0.0, first_sec - before["session"][1])


def merge_statements(counters: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the statements of all kinds of processes, those that took longest in all first."""
    rows = [
        {"kind": kind, "statement": text, "count": row["count"], "sec": round(row["sec"], 4)}
        for kind, counted in counters.items()
        for text, row in counted["statements"].items()
        if row["count"]
    ]
    return sorted(rows, key=lambda row: -float(str(row["sec"])))
