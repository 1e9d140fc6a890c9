"""A broker that moves: sentinels watch two of them, and whoever sends or hears follows them to the other."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

import pytest
from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import RedisError

from benchmarks.broker.weather import ANSWER_SEC
from mallorn.core.address_checks import free_port
from mallorn.core.errors import Unavailable
from mallorn.core.installation import python_path
from mallorn.core.queues import CONTROL, PLAN, celery_settings
from mallorn.services.coordinator.web.app_parts import Waker
from mallorn.stack.valkey import valkey_command
from tests.fixtures.waiting import wait_for

pytestmark = pytest.mark.long
WATCHED: Final = "mallorn"
SENTINEL: Final = """
port {port}
bind 127.0.0.1
dir {folder}
sentinel monitor {watched} 127.0.0.1 {first} 1
sentinel down-after-milliseconds {watched} 500
sentinel failover-timeout {watched} 2000
"""


class Brokers:
    """A broker, one that follows it, and a sentinel that watches both."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.first, self.second, self.sentinel = free_port(), free_port(), free_port()
        self.url = f"sentinel://127.0.0.1:{self.sentinel}/0?master_name={WATCHED}"
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._words = map(str, itertools.count())
        self._heard = folder / "heard"
        self._app = Celery("sender", set_as_current=False)
        self._app.conf.update(celery_settings(self.url) | {"task_routes": None})

    def __enter__(self) -> Self:
        self.start(self.first)
        self.start(self.second, "--replicaof", f"127.0.0.1 {self.first}")
        file = self._folder / "sentinel.conf"
        told = {"port": self.sentinel, "folder": self._folder, "watched": WATCHED, "first": self.first}
        file.write_text(SENTINEL.format(**told))
        binary = valkey_command(self._folder / "socket")[0]
        self._run(self.sentinel, [binary, str(file), "--sentinel"])
        wait_for(self._watches_both, "the sentinel to know both brokers")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def listen(self) -> None:
        """A worker as the product runs them."""
        command = [sys.executable, "-m", "benchmarks.broker.listener", self.url, str(self._heard)]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLORN_")}
        self._run(0, command, kept | {"PYTHONPATH": python_path()})

    def start(self, port: int, *words: str) -> None:
        usual = valkey_command(self._folder / f"socket-{port}")
        quick = ("--repl-diskless-sync-delay", "0")
        self._run(port, [*usual, "--port", str(port), "--bind", "127.0.0.1", *quick, *words])

    def kill(self, port: int) -> None:
        self._running[port].kill()
        self._running[port].wait()

    def begins_to_fail_over(self) -> bool:
        """From one that lives, and follows the other from then on; not before the sentinel knows both."""
        try:
            with Redis(port=self.sentinel) as sentinel:
                return sentinel.execute_command("SENTINEL", "FAILOVER", WATCHED) is not None
        except RedisError:
            return False

    def leader(self) -> int:
        with Redis(port=self.sentinel) as sentinel:
            return int(sentinel.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", WATCHED)[1])

    def follows(self, port: int) -> bool:
        try:
            with Redis(port=port) as broker:
                said = broker.info("replication")
        except RedisError:
            return False
        return said["role"] == "slave" and said["master_link_status"] == "up"

    def is_heard(self) -> bool:
        """Whether the worker hears one word of many."""
        word = next(self._words)
        try:
            self._app.send_task("hear", args=[word], queue="words", retry=False)
        except OperationalError:
            return False
        time.sleep(ANSWER_SEC)
        return self._heard.is_file() and word in self._heard.read_text().split()

    def _run(self, name: int, command: list[str], env: dict[str, str] | None = None) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(command, env=env, stdout=log, stderr=log)

    def _watches_both(self) -> bool:
        try:
            with Redis(port=self.sentinel) as sentinel:
                known = sentinel.execute_command("SENTINEL", "REPLICAS", WATCHED)
            return len(known) == 1 and self.follows(self.second)
        except RedisError:
            return False


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with TemporaryDirectory(prefix="s-") as folder, Brokers(Path(folder)) as started:
        yield started


def test_a_worker_hears_again_once_the_broker_has_moved(brokers: Brokers) -> None:
    brokers.listen()
    wait_for(brokers.is_heard, "the worker")
    brokers.kill(brokers.first)
    wait_for(lambda: brokers.leader() == brokers.second, "the sentinel to choose the other")
    wait_for(brokers.is_heard, "the worker, after its broker was dead")
    brokers.start(brokers.first, "--replicaof", f"127.0.0.1 {brokers.second}")
    wait_for(brokers.begins_to_fail_over, "the sentinel to move the broker back")
    wait_for(lambda: brokers.follows(brokers.second), "the broker to follow")
    wait_for(brokers.is_heard, "the worker, after its broker became one that only follows")


def test_a_coordinator_sends_to_where_the_broker_is_now(brokers: Brokers) -> None:
    waker = Waker(brokers.url)
    waker.ping()
    brokers.kill(brokers.first)
    waker.wake(PLAN, "while nobody leads")
    wait_for(lambda: leads(waker), "the coordinator to find the other")
    waker.wake(PLAN, "afterwards")
    with Redis(port=brokers.second) as broker:
        assert broker.llen(CONTROL) == 1
    waker.close()


def leads(waker: Waker) -> bool:
    try:
        waker.ping()
    except Unavailable:
        return False
    return True
