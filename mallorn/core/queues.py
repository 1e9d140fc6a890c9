"""Names of Celery queues and tasks, for senders and receivers.

Messages contain only ids: the state is in the database, and the broker only wakes workers.
"""

from typing import Final

CONTROL: Final = "control"
IMPORT: Final = "import"
ROUNDS: Final = "rounds"
TRAIN: Final = "train"
FINISH: Final = "finish"
WORKER_QUEUES: Final = (IMPORT, ROUNDS, FINISH, TRAIN)
TUNING_QUEUES: Final = (ROUNDS, FINISH, TRAIN)  # of a slot when another one only imports

PLAN: Final = "control.plan"  # (job_id: str)
SWEEP: Final = "control.sweep"  # ()
REAP: Final = "control.reap"  # ()
TIDY: Final = "control.tidy"  # ()
BACK_UP: Final = "control.back_up"  # ()
IMPORT_MODEL: Final = "workers.import_model"  # (job_id: str)
WARM_UP: Final = "workers.warm_up"  # (job_id: str)
RUN_ROUND: Final = "workers.run_round"  # (round_id: int)
TRAIN_COST_MODEL: Final = "workers.train_cost_model"  # (job_id: str, task_id: int)
FINISH_JOB: Final = "workers.finish_job"  # (job_id: str)
MEASURE_MACHINE: Final = "workers.measure_machine"  # (device: str)

#: Periodic tasks of the control process, with their period in seconds.
TICKS: Final = {
    SWEEP: 5.0,
    REAP: 5.0,
    TIDY: 60.0,
    BACK_UP: 600.0,  # checks often for a backup a day old, as a service may not run for a day
}

_TASKS_BY_QUEUE: Final = {
    CONTROL: (PLAN, *TICKS),
    IMPORT: (IMPORT_MODEL,),
    ROUNDS: (WARM_UP, RUN_ROUND, MEASURE_MACHINE),
    TRAIN: (TRAIN_COST_MODEL,),
    FINISH: (FINISH_JOB,),
}
ROUTES: Final = {task: {"queue": queue} for queue, tasks in _TASKS_BY_QUEUE.items() for task in tasks}
