"""What is sampled while a service is measured: Postgres's activity, processor time, memory, messages."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any, Final, Self

import psutil
import psycopg
import redis

PERIOD_SEC: Final = 0.02
OPEN_ROUNDS_EVERY: Final = 25  # samples
MIB: Final = 1 << 20
TVM_CHILD: Final = "TVM child"
_ACTIVITY: Final = """
SELECT substr(application_name, 9), count(*), count(*) FILTER (WHERE wait_event_type = 'Lock'),
       count(*) FILTER (WHERE state = 'active')
FROM pg_stat_activity WHERE application_name LIKE 'mallorn %' AND datname = current_database()
GROUP BY application_name"""
_OPEN_ROUNDS: Final = "SELECT state, count(*) FROM rounds WHERE state IN ('queued', 'leased') GROUP BY state"
_DATABASE: Final = """
SELECT xact_commit, xact_rollback, deadlocks, (SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'))::float8
FROM pg_stat_database WHERE datname = current_database()"""


@dataclass
class PostgresSampler:
    """Samples a database's activity in a thread during the block."""

    url: str
    lock_wait_sec: float = 0.0
    active_sec: float = 0.0
    connections: Counter[str] = field(default_factory=Counter)  # the most, by kind of process
    totals: list[int] = field(default_factory=list)  # connections of all kinds, a sample each
    open_rounds: list[dict[str, int]] = field(default_factory=list)

    @property
    def own_transactions(self) -> int:
        """Transactions of the sampler itself."""
        return len(self.totals) + len(self.open_rounds)

    def reset(self) -> None:
        """Forget what was sampled so far."""
        self.lock_wait_sec = self.active_sec = 0.0
        self.connections, self.totals, self.open_rounds = Counter(), [], []

    def __enter__(self) -> Self:
        self._connection = psycopg.connect(self.url, autocommit=True)
        self.pid = self._connection.info.backend_pid
        self._is_over = Event()
        self._thread = Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._connection.close()

    def _sample(self) -> None:
        last_sec, number = time.monotonic(), 0
        while not self._is_over.wait(PERIOD_SEC):
            rows = self._connection.execute(_ACTIVITY).fetchall()
            passed_sec = time.monotonic() - last_sec
            last_sec += passed_sec
            self.totals.append(sum(row[1] for row in rows))
            for name, count, waiting, active in rows:
                self.connections[name] = max(self.connections[name], count)
                self.lock_wait_sec += waiting * passed_sec
                self.active_sec += active * passed_sec
            if number % OPEN_ROUNDS_EVERY == 0:
                self.open_rounds.append(dict(self._connection.execute(_OPEN_ROUNDS).fetchall()))
            number += 1


def read_database_counters(url: str) -> dict[str, float]:
    """Return commits, rollbacks and deadlocks of a database so far, and the WAL's position in bytes."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(_DATABASE).fetchone()
    assert row is not None
    return dict(zip(("commits", "rollbacks", "deadlocks", "wal_bytes"), map(float, row), strict=True))


def postgres_processes(url: str, without: int) -> list[psutil.Process]:
    """Return the server's processes, except the backend with the process id `without`."""
    with psycopg.connect(url, autocommit=True) as connection:
        backend_pid = connection.info.backend_pid
    parent = psutil.Process(without).parent()
    assert parent is not None
    return [parent, *(p for p in parent.children(recursive=True) if p.pid not in (without, backend_pid))]


def processor_sec(tree: Mapping[str, list[psutil.Process]]) -> dict[str, float]:
    """Return processor seconds so far by kind. Children that ended count for their parents' kind,
    except that those of workers count as TVM children."""
    seconds: dict[str, float] = defaultdict(float)
    for kind, processes in tree.items():
        for process in processes:
            with suppress(psutil.Error):
                times = process.cpu_times()
                seconds[kind] += times.user + times.system
                ended_kind = TVM_CHILD if kind == "worker" else kind
                seconds[ended_kind] += times.children_user + times.children_system
    return dict(seconds)


def memory_mib(tree: Mapping[str, list[psutil.Process]]) -> dict[str, dict[str, float]]:
    """Return processes, RSS and PSS by kind of process, in MiB."""
    found: dict[str, dict[str, float]] = {}
    for kind, processes in tree.items():
        sums = {"processes": 0.0, "rss": 0.0, "pss": 0.0}
        for process in processes:
            with suppress(psutil.Error):
                memory = process.memory_full_info()
                sums["processes"] += 1
                sums["rss"] += memory.rss / MIB
                sums["pss"] += memory.pss / MIB
        found[kind] = {name: round(value, 1) for name, value in sums.items()}
    return found


def redis_calls(client: "redis.Redis") -> dict[str, int]:
    """Return how often each command was called so far."""
    stats: dict[str, Any] = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()}


def host_busy_sec() -> float:
    """Return the seconds that all processors of this host worked so far, for anybody."""
    times = psutil.cpu_times()
    return float(sum(times[:8]) - times.idle - times.iowait)
