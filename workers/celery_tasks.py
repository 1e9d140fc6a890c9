"""The Celery tasks of the workers; each calls one function of another module.

They ignore further arguments, which messages of a newer version may have.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

from celery.exceptions import Reject

from mallorn.core import queues
from mallorn.core.log_setup import log_facts
from mallorn.core.states import WorkKind
from mallorn.workers.app import app, send_task
from mallorn.workers.finish.run import finish
from mallorn.workers.hardware_probe.run import measure_device, remeasure_if_beaten
from mallorn.workers.model_import.run import import_job
from mallorn.workers.process.leased_work import LeasedWork, leased_work
from mallorn.workers.process.worker_runtime import Runtime, runtime
from mallorn.workers.round.run import fix_round_inputs, run_round
from mallorn.workers.round.train_cost_model import train
from mallorn.workers.subprocesses.shutdown import ShutdownRequested


@contextmanager
def _place() -> Iterator[Runtime]:
    """Yield what one place of this worker works with, as soon as one is free. Rest after a
    fault of the host. If this worker stops, a message that waits goes back to its queue."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(runtime().places.take())
        except ShutdownRequested as error:
            raise Reject(error, requeue=True) from error
        place.health.pause_until_healthy()  # another place may have found a fault
        yield place
        place.health.pause_until_healthy()


@app.task(name=queues.WORK)
def do_work(capability: str, *_newer: object) -> None:
    """Do the best waiting work that this worker can do: an import, or a round or a finish."""
    kinds = (WorkKind.IMPORT,) if capability == queues.IMPORT else (WorkKind.ROUND, WorkKind.FINISH)
    roll_call, go_on = runtime().roll_call, None
    with _place() as place:
        with leased_work(place, roll_call.ability.for_kinds(*kinds), fix_round_inputs) as work:
            if work is None:
                roll_call.look_for_devices()
            else:
                go_on = _DO[work.hold.item.kind](work)
        if go_on is not None:  # the work is done, and its lease has ended
            go_on()


def _import(work: LeasedWork) -> Callable[[], object]:
    if not work.runtime.tunes:
        send_task(queues.WARM_UP, work.job.id)  # a worker that tunes starts its processes meanwhile
    import_job(work)
    return partial(send_task, queues.PLAN, work.job.id)


def _measure(work: LeasedWork) -> Callable[[], object]:
    closed_round = run_round(work)

    def go_on() -> None:
        # The model first: it should have seen this round when the next is proposed.
        send_task(queues.TRAIN_COST_MODEL, work.job.id, closed_round.task_id)
        send_task(queues.PLAN, work.job.id)

    return go_on


def _finish(work: LeasedWork) -> Callable[[], object]:
    finish(work)
    return partial(remeasure_if_beaten, work.runtime, work.job.id)


_DO: Final = {WorkKind.IMPORT: _import, WorkKind.ROUND: _measure, WorkKind.FINISH: _finish}


@app.task(name=queues.WARM_UP)
def warm_up(job_id: str, *_newer: object) -> None:
    """Start the processes that a job's rounds need, before its first round."""
    runtime().warm_up(job_id)


_training: Final = threading.Lock()
_to_train: Final[set[tuple[str, int]]] = set()


@app.task(name=queues.TRAIN_COST_MODEL)
def train_cost_model(job_id: str, task_id: int, *_newer: object) -> None:
    """Refit the cost model of a task's family (tasks that share measurements and a model) when its
    training data has grown enough. One place does so at a time, for all that ask meanwhile."""
    _to_train.add((job_id, task_id))
    while _to_train and _training.acquire(blocking=False):
        try:
            with _place() as place:
                while _to_train:
                    job_id, task_id = _to_train.pop()
                    with log_facts(job=job_id):
                        train(place, job_id, task_id)
        finally:
            _training.release()


@app.task(name=queues.MEASURE_MACHINE)
def measure_machine(device: str, *_newer: object) -> None:
    """Measure the peak FLOPS and bandwidth of a device's machine."""
    with _place() as place:
        measure_device(place, device)
