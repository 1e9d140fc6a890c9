"""The Celery app of the workers. Slots run the `solo` pool: nothing forks."""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

from celery import Celery
from celery.signals import worker_ready, worker_shutdown, worker_shutting_down

from mallorn.core import queues
from mallorn.core.broker import celery_settings
from mallorn.core.errors import MallornError
from mallorn.core.settings import settings
from workers.children.shutdown import STOP

log = logging.getLogger(__name__)

app = Celery("mallorn-workers", include=["workers.tasks"])
app.conf.update(celery_settings(settings().redis_url))


def send(name: str, *args: object) -> None:
    """Wake whoever serves a task, after the commit it is about."""
    app.send_task(name, args=args)


@worker_ready.connect
def _enlist(**_signal: object) -> None:
    from workers.slot.runtime import runtime

    tunes = queues.ROUNDS in app.amqp.queues.consume_from
    runtime().enlist(tunes, met=lambda device: send(queues.MEASURE_MACHINE, device))
    _look_at_the_host()


def _look_at_the_host() -> None:
    """Say at once what every candidate would fail for; a worker that trains and plans may go on without."""
    from workers.tvm.linker import check_linking

    with TemporaryDirectory(prefix="mallorn-check-") as folder:
        try:
            check_linking(Path(folder))
        except MallornError as error:
            log.error("this worker cannot build candidates: %s", error)


@worker_shutting_down.connect
def _let_go(**_signal: object) -> None:
    # Runs in the signal handler, in the middle of a task: Celery then waits for the task to return.
    STOP.ask()


@worker_shutdown.connect
def _leave(**_signal: object) -> None:
    from workers.slot.runtime import runtime

    runtime().close()
