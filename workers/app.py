"""The Celery app of the workers. They use Celery's pool of threads, so that nothing forks."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from celery import Celery
from celery.signals import worker_ready, worker_shutdown, worker_shutting_down

from mallorn.core import queues
from mallorn.core.queues import celery_settings
from mallorn.core.settings import settings
from mallorn.core.states import WorkKind
from mallorn.workers.process.places import MOST_PLACES
from mallorn.workers.subprocesses.shutdown import STOP

#: For the work at each place, and for a message that waits until one is free.
THREADS: Final = MOST_PLACES + 1
log = logging.getLogger(__name__)
_KINDS: Final = {
    queues.IMPORT: WorkKind.IMPORT,
    queues.ROUNDS: WorkKind.ROUND,
    queues.FINISH: WorkKind.FINISH,
}

app = Celery("mallorn-workers", include=["mallorn.workers.celery_tasks"])
app.conf.update(celery_settings(settings().redis_url))


def queues_to_consume(kinds: Sequence[str]) -> list[str]:
    """Return the queues that a worker for these kinds of work consumes: those kinds, named
    as in WORKER_QUEUES, and those that wake it for its toolchains and its builder."""
    from mallorn.workers.host.code_digest import current_builder_name
    from mallorn.workers.process.toolchains import missing_tools

    names = [*kinds]
    if queues.IMPORT in kinds:
        names.append(queues.queue_of_work(queues.IMPORT))
    if queues.ROUNDS in kinds or queues.FINISH in kinds:
        for toolchain in (name for name, missing in missing_tools().items() if not missing):
            for builder in ("", current_builder_name(toolchain)):
                names.append(queues.queue_of_work(queues.capability(toolchain, builder)))
    return names


def send_task(name: str, *args: object) -> None:
    """Send a task to the workers, after committing the rows that the task reads."""
    app.send_task(name, args=args)


def _consume(consumer: Any, places: int) -> None:
    """Let Celery take a message for each place, and one more, which waits until one is
    free. Further messages stay in their queues, for workers that have a free place now."""
    consumer.initial_prefetch_count = places + 1  # of its next connection
    if consumer.qos is not None:
        change = places + 1 - consumer.qos.value
        (consumer.qos.increment_eventually if change > 0 else consumer.qos.decrement_eventually)(abs(change))


@worker_ready.connect
def _start_worker(sender: Any, **_signal: object) -> None:
    from mallorn.workers.finish.compiled_library_cache import remove_deleted_models
    from mallorn.workers.host.code_digest import store_source_digest
    from mallorn.workers.process.lookout import Lookout
    from mallorn.workers.process.worker_runtime import runtime
    from mallorn.workers.sandbox.sandbox_support import probe_sandbox_support

    consumed = app.amqp.queues.consume_from
    kinds = frozenset(kind for queue, kind in _KINDS.items() if queue in consumed)
    runtime().tunes = WorkKind.ROUND in kinds
    _consume(sender, runtime().places.width)

    def use(places: int) -> None:
        _consume(sender, places)
        runtime().roll_call.report_width(places)

    runtime().places.on_width = use
    store_source_digest()
    runtime().roll_call.start(
        probe_sandbox_support(settings().sandbox_mode()),
        kinds,
        on_unmeasured=partial(send_task, queues.MEASURE_MACHINE),
        tidy=partial(remove_deleted_models, settings().data_dir, runtime().database),
        plan=partial(send_task, queues.PLAN),
    )
    Lookout(runtime(), send_task).start()
    # Log at once why every candidate would fail. The worker goes on: it can still train and plan.
    from mallorn.workers.process.worker_health import find_host_fault

    if (error := find_host_fault(tunes=True)) is not None:
        log.error("this worker cannot build candidates: %s", error)


@worker_shutting_down.connect
def _request_stop(**_signal: object) -> None:
    # Runs in the signal handler, in the middle of a task: Celery then waits for the task to return.
    STOP.request_stop()


@worker_shutdown.connect
def _close_runtime(**_signal: object) -> None:
    from mallorn.workers.process.worker_runtime import runtime

    runtime().close()
