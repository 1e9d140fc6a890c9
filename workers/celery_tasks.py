"""The Celery tasks of the workers; each calls one function of another module.

They ignore further arguments, which messages of a newer version may have.
"""

from mallorn.core import queues
from mallorn.core.log_setup import log_facts
from mallorn.workers.app import app, send_task
from mallorn.workers.finish.run import finish
from mallorn.workers.hardware_probe.run import measure_device, remeasure_if_beaten
from mallorn.workers.model_import.run import import_job
from mallorn.workers.process.worker_runtime import runtime
from mallorn.workers.round.run import run
from mallorn.workers.round.train_cost_model import train


@app.task(name=queues.IMPORT_MODEL)
def import_model(job_id: str, *_newer: object) -> None:
    """Import a job's model and extract the tasks to tune."""
    if not runtime().tunes:
        send_task(queues.WARM_UP, job_id)  # a worker that tunes starts its processes meanwhile
    with log_facts(job=job_id):
        if (imported := import_job(runtime(), job_id)) is not None:
            send_task(queues.PLAN, imported)


@app.task(name=queues.WARM_UP)
def warm_up(job_id: str, *_newer: object) -> None:
    """Start the processes that a job's rounds need, before its first round."""
    runtime().warm_up(job_id)


@app.task(name=queues.RUN_ROUND)
def run_round(round_id: int, *_newer: object) -> None:
    """Propose, build and measure the candidates of one round."""
    with log_facts(round=round_id):
        completed_round = run(runtime(), round_id)
    if completed_round is None:
        return
    # The model first: the next round should be proposed by one that has seen this round.
    send_task(queues.TRAIN_COST_MODEL, completed_round.job_id, completed_round.task_id)
    send_task(queues.PLAN, completed_round.job_id)


@app.task(name=queues.TRAIN_COST_MODEL)
def train_cost_model(job_id: str, task_id: int, *_newer: object) -> None:
    """Refit the cost model of a task's family (tasks that share measurements and a model)
    when its training data has grown enough."""
    with log_facts(job=job_id):
        train(runtime(), job_id, task_id)


@app.task(name=queues.FINISH_JOB)
def finish_job(job_id: str, *_newer: object) -> None:
    """Measure a job's best candidates again, check and store the winners, export them."""
    with log_facts(job=job_id):
        finish(runtime(), job_id)
        remeasure_if_beaten(runtime(), job_id)


@app.task(name=queues.MEASURE_MACHINE)
def measure_machine(device: str, *_newer: object) -> None:
    """Measure the peak FLOPS and bandwidth of a device's machine."""
    measure_device(runtime(), device)
