"""The Celery app of the workers, which use Celery's `solo` pool, so that nothing forks."""

import logging
from functools import partial

from celery import Celery
from celery.signals import task_postrun, worker_ready, worker_shutdown, worker_shutting_down

from mallorn.core import queues
from mallorn.core.queues import celery_settings
from mallorn.core.settings import settings
from mallorn.workers.subprocesses.shutdown import STOP

log = logging.getLogger(__name__)

app = Celery("mallorn-workers", include=["mallorn.workers.celery_tasks"])
app.conf.update(celery_settings(settings().redis_url))


def send_task(name: str, *args: object) -> None:
    """Send a task to the workers, after committing the rows that the task reads."""
    app.send_task(name, args=args)


@worker_ready.connect
def _start_worker(**_signal: object) -> None:
    from mallorn.workers.finish.compiled_library_cache import remove_deleted_models
    from mallorn.workers.host.code_digest import store_source_digest
    from mallorn.workers.process.worker_runtime import runtime
    from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support

    runtime().tunes = queues.ROUNDS in app.amqp.queues.consume_from
    store_source_digest()
    runtime().roll_call.start(
        probe_sandbox_support(settings().sandbox_mode()),
        runtime().tunes,
        on_unmeasured=partial(send_task, queues.MEASURE_MACHINE),
        tidy=partial(remove_deleted_models, settings().data_dir, runtime().database),
        plan=partial(send_task, queues.PLAN),
    )
    # Log at once why every candidate would fail. The worker goes on: it can still train and plan.
    from mallorn.workers.process.worker_health import find_host_fault

    if (error := find_host_fault(tunes=True)) is not None:
        log.error("this worker cannot build candidates: %s", error)


@task_postrun.connect
def _pause_after_host_fault(**_signal: object) -> None:
    # The message is acknowledged only after this returns, so that a resting worker holds no other one.
    from mallorn.workers.process.worker_runtime import runtime

    runtime().health.pause_until_healthy()


@worker_shutting_down.connect
def _request_stop(**_signal: object) -> None:
    # Runs in the signal handler, in the middle of a task: Celery then waits for the task to return.
    STOP.request_stop()


@worker_shutdown.connect
def _close_runtime(**_signal: object) -> None:
    from mallorn.workers.process.worker_runtime import runtime

    runtime().close()
