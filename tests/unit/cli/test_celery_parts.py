"""How workers are started and stopped: with our own modules, wherever that is, and without a wait."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu.asynchronous import Hub

from mallorn.stack.run_celery import WakeForSignals, run_worker
from tests.fixtures.waiting import PATIENCE

TASKS = "tasks_of_this_test"


@pytest.fixture
def two_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of ours on the path, and one of the same name in the working directory."""
    for place in ("ours", "theirs"):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{TASKS}.py").write_text(f"PLACE = {place!r}")
    monkeypatch.syspath_prepend(tmp_path / "ours")
    monkeypatch.chdir(tmp_path / "theirs")
    yield
    sys.modules.pop(TASKS, None)


@pytest.mark.usefixtures("two_places")
def test_tasks_are_ours_and_not_those_of_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Celery(include=[TASKS], set_as_current=False)
    monkeypatch.setattr(app, "worker_main", lambda argv: app.loader.import_default_modules())
    run_worker(app, ["q"], "w")
    assert sys.modules[TASKS].PLACE == "ours"


def test_a_signal_wakes_the_loop_of_a_worker() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    before_fd = signal.set_wakeup_fd(-1)
    hub: Any = Hub
    hub, step = hub(), WakeForSignals(None)
    try:
        step.register_with_event_loop(None, hub)
        os.kill(os.getpid(), signal.SIGUSR1)
        woken = [fd for fd, _ in hub.poller.poll(PATIENCE)]
        assert woken == list(hub.readers)
        callback, arguments = hub.readers[woken[0]]
        assert callback(*arguments) == bytes([signal.SIGUSR1])
        assert not hub.poller.poll(0)
    finally:
        signal.set_wakeup_fd(before_fd)
        signal.signal(signal.SIGUSR1, before)
        hub.close()
        step.reader.close()
        step.writer.close()
