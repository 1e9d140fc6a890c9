"""Runs a Celery worker in this process, and tells the supervisor when it is ready."""

import os
import signal
import socket
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from celery import Celery, bootsteps
from celery.signals import setup_logging, worker_ready

from mallorn.stack.supervised_process import READY_FILE_VARIABLE


def run_worker(app: Celery, queues: Sequence[str], name: str, threads: int = 0) -> None:
    """Run a Celery worker without child processes, as TVM does not work after a fork.

    Its tasks run in so many threads or, with 0, one by one in the thread that calls this.
    """
    worker_ready.connect(_touch_ready_file)
    setup_logging.connect(_prevent_logging_setup)
    for module in app.conf.include:  # Celery's own import would find a user's db.py before our db
        import_module(module)
    app.steps["consumer"].add(WakeForSignals)
    app.worker_main(
        [
            "--quiet",  # no banner in the log
            "worker",
            *(("--pool", "threads", "--concurrency", str(threads)) if threads else ("--pool", "solo")),
            *("--queues", ",".join(queues)),
            *("--hostname", f"{name}@%h"),
            # Messages between workers, which nothing here uses.
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ]
    )


class WakeForSignals(bootsteps.StartStopStep):  # type: ignore[misc]
    """Wakes Celery's event loop on a signal; without this, a stop takes up to a second longer."""

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self.reader, self.writer = socket.socketpair()
        self.reader.setblocking(False)
        self.writer.setblocking(False)
        signal.set_wakeup_fd(self.writer.fileno(), warn_on_full_buffer=False)

    def register_with_event_loop(self, _consumer: Any, hub: Any) -> None:
        """Let signals wake an event loop; Celery calls this for each connection's loop."""
        hub.add_reader(self.reader.fileno(), self.reader.recv, 64)


def _touch_ready_file(**_: Any) -> None:
    if path := os.environ.get(READY_FILE_VARIABLE):
        Path(path).touch()


def _prevent_logging_setup(**_: Any) -> None:
    """Do nothing: a receiver of this signal keeps Celery from configuring logging."""
