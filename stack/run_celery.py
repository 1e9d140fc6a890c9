"""Runs a Celery app in this process, as a worker or as beat, and tells the supervisor when it is ready."""

import os
import signal
import socket
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps
from celery.signals import beat_init, setup_logging, worker_ready

from stack.supervised_process import READY_FILE_VARIABLE


def run_worker(app: Celery, queues: Sequence[str], name: str) -> None:
    """Serve queues one message at a time, in this very process: prefork and TVM do not go together."""
    worker_ready.connect(_tell_ready)
    setup_logging.connect(_leave_logging)
    _import_tasks(app)
    app.steps["consumer"].add(WakeForSignals)
    app.worker_main(
        [
            "--quiet",  # its banner is no line of a log
            "worker",
            *("--pool", "solo"),
            *("--queues", ",".join(queues)),
            *("--hostname", f"{name}@%h"),
            # Chatter between workers that nobody here listens to.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )


class WakeForSignals(bootsteps.StartStopStep):  # type: ignore[misc]
    """Wakes Celery's loop on a signal; otherwise it notices a stop after up to a second."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.reader, self.writer = socket.socketpair()
        self.reader.setblocking(False)
        self.writer.setblocking(False)
        signal.set_wakeup_fd(self.writer.fileno(), warn_on_full_buffer=False)

    def register_with_event_loop(self, _consumer: Any, hub: Any) -> None:
        """Have a loop read what arrives; Celery calls this for the loop of each connection."""
        hub.add_reader(self.reader.fileno(), self.reader.recv, 64)


def run_beat(app: Celery) -> None:
    """Send the scheduled wake-ups; when they were last sent is worth nothing after a restart."""
    beat_init.connect(_tell_ready)
    setup_logging.connect(_leave_logging)
    _import_tasks(app)
    app.start(["--quiet", "beat", "--pidfile="])


def _import_tasks(app: Celery) -> None:
    """Celery looks for tasks in the working directory first, where a user's db.py would pass for our db."""
    for module in app.conf.include:
        import_module(module)


def _tell_ready(**_: Any) -> None:
    path = os.environ.get(READY_FILE_VARIABLE)
    if path:
        Path(path).touch()


def _leave_logging(**_: Any) -> None:
    """Whoever answers this signal has set logging up; Celery's own lines then look like all others."""
