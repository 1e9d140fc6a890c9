"""Valkey on TCP, a worker as the product runs them behind a proxy, and what may befall its broker."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from celery import Celery

from benchmarks.broker.black_hole import BlackHole
from mallorn.core.address_checks import free_port
from mallorn.core.installation import python_path
from mallorn.stack.valkey import valkey_command

ANSWER_SEC: Final = 1.0  # from a word to its being heard, with room


class Heard:
    """Says words to a worker, and looks whether they arrive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._heard = folder / "heard"
        self._words = map(str, itertools.count())
        self._app = Celery("sender", broker=f"redis://127.0.0.1:{self._port}/0")
        self._app.conf.broker_connection_timeout = 1
        self.hole = BlackHole(self._port)

    def __enter__(self) -> Self:
        self.start()
        self.hole.__enter__()
        url = f"redis://127.0.0.1:{self.hole.port}/0"
        command = [sys.executable, "-m", "benchmarks.broker.listener", url, str(self._heard)]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLORN_")}
        with (self._folder / "worker.log").open("wb") as log:
            own = kept | {"PYTHONPATH": python_path()}
            self._worker = subprocess.Popen(command, env=own, stdout=log, stderr=log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (self._worker, self.process):
            process.kill()
            process.wait()
        self.hole.__exit__(kind, error, trace)

    def start(self) -> None:
        """The broker, empty."""
        words = [*valkey_command(self._folder / "socket"), "--port", str(self._port), "--bind", "127.0.0.1"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)

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
        time.sleep(ANSWER_SEC)
        return self._heard.is_file() and word in self._heard.read_text().split()


@contextmanager
def swallowed(broker: Heard) -> Iterator[None]:
    """Connections stay open, and nothing comes through."""
    broker.hole.swallows.set()
    yield
    broker.hole.swallows.clear()


@contextmanager
def stopped(broker: Heard) -> Iterator[None]:
    """SIGSTOP."""
    broker.process.send_signal(signal.SIGSTOP)
    yield
    broker.process.send_signal(signal.SIGCONT)


@contextmanager
def killed(broker: Heard) -> Iterator[None]:
    """SIGKILL, and a new one afterwards, which knows nothing."""
    broker.process.kill()
    broker.process.wait()
    yield
    broker.start()


@contextmanager
def flushed(broker: Heard) -> Iterator[None]:
    """Everything that waits is gone."""
    broker.flush()
    yield


Fault = Callable[[Heard], AbstractContextManager[None]]
FAULTS: Final[tuple[Fault, ...]] = (swallowed, stopped, killed, flushed)
