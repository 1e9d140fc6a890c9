"""Whatever becomes of the broker for a while: afterwards workers hear again, and nobody helps them."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from celery import Celery

from stack.ports import free_port
from stack.valkey import valkey_command
from tests.fixtures.black_hole import BlackHole
from tests.fixtures.command_line import ROOT, clean_environment
from tests.fixtures.processes import end
from tests.fixtures.waiting import wait_for

AWAY_SEC = 7.0  # longer than a worker waits for an answer


class Broker:
    """Valkey on TCP, and a worker that reaches it through a proxy."""

    def __init__(self, folder: Path, hole: BlackHole, port: int) -> None:
        self.hole = hole
        self._folder = folder
        self._port = port
        self._heard = folder / "heard"
        self._words = map(str, itertools.count())
        self._app = Celery("sender", broker=f"redis://127.0.0.1:{port}/0")
        self._app.conf.broker_connection_timeout = 1
        self.start()

    def start(self) -> None:
        command = [*valkey_command(self._folder / "socket"), "--port", str(self._port), "--bind", "127.0.0.1"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def flush(self) -> None:
        with self._app.connection() as connection:
            connection.default_channel.client.flushall()

    def is_heard(self) -> bool:
        """Whether the worker hears one word of many."""
        word = next(self._words)
        try:
            self._app.send_task("hear", args=[word], queue="words", retry=False)
        except Exception:  # the broker may not be there yet
            return False
        time.sleep(1.0)
        return self._heard.is_file() and word in self._heard.read_text().split()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    port = free_port()
    with BlackHole(port) as hole:
        broker = Broker(tmp_path, hole, port)
        url = f"redis://127.0.0.1:{hole.port}/0"
        command = [sys.executable, "-m", "tests.fixtures.listener", url, str(tmp_path / "heard")]
        environment = clean_environment() | {"PYTHONPATH": str(ROOT)}
        with (tmp_path / "worker.log").open("wb") as log:
            worker = subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        try:
            wait_for(broker.is_heard, "the worker")
            yield broker
        finally:
            end(worker)
            broker.process.send_signal(signal.SIGCONT)
            end(broker.process)


@contextmanager
def swallowed(broker: Broker) -> Iterator[None]:
    broker.hole.swallows.set()
    yield
    broker.hole.swallows.clear()


@contextmanager
def stopped(broker: Broker) -> Iterator[None]:
    broker.process.send_signal(signal.SIGSTOP)
    yield
    broker.process.send_signal(signal.SIGCONT)


@contextmanager
def killed(broker: Broker) -> Iterator[None]:
    os.kill(broker.process.pid, signal.SIGKILL)
    broker.process.wait()
    yield
    broker.start()


@contextmanager
def flushed(broker: Broker) -> Iterator[None]:
    broker.flush()
    yield


@pytest.mark.parametrize("away", [swallowed, stopped, killed, flushed])
def test_a_worker_hears_again_once_the_broker_is_back(broker: Broker, away: Callable[..., object]) -> None:
    with away(broker):  # type: ignore[attr-defined]
        time.sleep(AWAY_SEC)
    wait_for(broker.is_heard, "the worker, after the broker was back")
