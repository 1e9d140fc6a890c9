"""Which sessions of a device waited for their client until they ended."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mallorn.workers.device import device_server
from mallorn.workers.device.device_server import Running

WAITS = "import sys; sys.stdin.read()"
COMPUTES = "import time\nbegan = time.process_time()\nwhile time.process_time() - began < 0.5: pass"


@contextmanager
def ended(program: str) -> Iterator[Running]:
    """A session that was looked at when it began, and has ended since."""
    process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{program}"], stdin=-1, stdout=-1)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()  # it has begun
    with socket.socket() as connection:
        session = Running(process.pid, -1, connection, Path(), None, {})  # type: ignore[arg-type, typeddict-item]
        session.record_state()
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield session
    process.stdout.close()
    process.wait()


@pytest.fixture(autouse=True)
def seen_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look finds a session in the call that waits for its client: between two calls all are there."""
    monkeypatch.setattr(device_server, "is_waiting_on_descriptor", lambda *_: True)


def test_one_that_waited_all_the_time_was_not_called() -> None:
    with ended(WAITS) as session:
        assert session.has_only_waited()


def test_one_that_has_computed_since_it_was_looked_at_was_called() -> None:
    with ended(COMPUTES) as session:
        assert not session.has_only_waited()
