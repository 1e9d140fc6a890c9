"""The Celery tasks of the workers: each a thin door into a room of this package.

What a newer version says besides in a message is passed over.
"""

from mallorn.core import queues
from mallorn.core.log_setup import about
from workers.app import app, send
from workers.finish.run import finish
from workers.hardware_probe.run import measure_device, remeasure_if_beaten
from workers.model_import.run import import_job
from workers.process.worker_runtime import runtime
from workers.round.run import run
from workers.round.train_cost_model import train


@app.task(name=queues.IMPORT_MODEL)
def import_model(job_id: str, *_newer: object) -> None:
    """Turn a job's model into tasks."""
    if not runtime().tunes:
        send(queues.WARM_UP, job_id)  # whoever runs the first round gets ready meanwhile
    with about(job=job_id):
        if (imported := import_job(runtime(), job_id)) is not None:
            send(queues.PLAN, imported)


@app.task(name=queues.WARM_UP)
def warm_up(job_id: str, *_newer: object) -> None:
    """Start what a job's rounds need, before there is one."""
    runtime().warm_up(job_id)


@app.task(name=queues.RUN_ROUND)
def run_round(round_id: int, *_newer: object) -> None:
    """Propose, build and measure one round."""
    with about(round=round_id):
        closed = run(runtime(), round_id)
    if closed is None:
        return
    # The model first: the next round should be proposed by one that has seen this round.
    send(queues.TRAIN_COST_MODEL, closed.job_id, closed.task_id)
    send(queues.PLAN, closed.job_id)


@app.task(name=queues.TRAIN_COST_MODEL)
def train_cost_model(job_id: str, task_id: int, *_newer: object) -> None:
    """Refit the model of a task's family when its data has grown enough."""
    with about(job=job_id):
        train(runtime(), job_id, task_id)


@app.task(name=queues.FINISH_JOB)
def finish_job(job_id: str, *_newer: object) -> None:
    """Measure the best again, check and promote them, export and report."""
    with about(job=job_id):
        finish(runtime(), job_id)
        remeasure_if_beaten(runtime(), job_id)


@app.task(name=queues.MEASURE_MACHINE)
def measure_machine(device: str, *_newer: object) -> None:
    """Find out what a device's machine computes and moves."""
    measure_device(runtime(), device)
