"""Runs a Celery app in this process, as a worker or as beat, and tells the supervisor when it is ready."""

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import beat_init, setup_logging, worker_ready

from stack.supervised_process import READY_FILE_VARIABLE


def run_worker(app: Celery, queues: Sequence[str], name: str) -> None:
    """Serve queues one message at a time, in this very process: prefork and TVM do not go together."""
    worker_ready.connect(_tell_ready)
    setup_logging.connect(_leave_logging)
    _import_tasks(app)
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
