"""Names of Celery's queues and tasks, and the Celery configuration of all processes."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs, urlsplit

from mallorn.core.errors import InvalidRequest

Message = tuple[str, *tuple[object, ...]]  # a task's name and its arguments, sent after a commit

CONTROL: Final = "control"
IMPORT: Final = "import"
ROUNDS: Final = "rounds"
TRAIN: Final = "train"
FINISH: Final = "finish"
WORKER_QUEUES: Final = (IMPORT, ROUNDS, FINISH, TRAIN)
TUNING_QUEUES: Final = (ROUNDS, FINISH, TRAIN)  # of a worker when another one only imports

PLAN: Final = "control.plan"  # (job_id: str)
SWEEP: Final = "control.sweep"  # ()
REAP: Final = "control.reap"  # ()
TIDY: Final = "control.tidy"  # ()
BACK_UP: Final = "control.back_up"  # ()
WORK: Final = "workers.do_work"  # (capability: str), as `capability` returns it, or IMPORT
WARM_UP: Final = "workers.warm_up"  # (job_id: str)
TRAIN_COST_MODEL: Final = "workers.train_cost_model"  # (job_id: str, task_id: int)
MEASURE_MACHINE: Final = "workers.measure_machine"  # (device: str)

#: Periodic tasks of the control process, with their period in seconds.
TICKS: Final = {
    SWEEP: 5.0,
    REAP: 5.0,
    TIDY: 60.0,
    BACK_UP: 600.0,  # looks whether the last backup is a day old; a service may run for less
}

_TASKS_BY_QUEUE: Final = {
    CONTROL: (PLAN, *TICKS),
    ROUNDS: (WARM_UP, MEASURE_MACHINE),
    TRAIN: (TRAIN_COST_MODEL,),
}
#: Queues by task, but for WORK, which has one for each capability.
QUEUES: Final = {task: queue for queue, tasks in _TASKS_BY_QUEUE.items() for task in tasks}


def capability(toolchain: str, builder: str = "") -> str:
    """Return the name of the ability to build with a toolchain and, if given, a builder."""
    return f"{toolchain}.{builder}" if builder else toolchain


def queue_of_work(capability: str) -> str:
    """Return the queue that wakes workers with a capability or, for IMPORT, importers."""
    return f"work.{capability}"


def route(name: str, args: Sequence[object], *_call: object, **_options: object) -> dict[str, str] | None:
    """Return the queue of a task, as Celery asks for it."""
    if name == WORK:
        return {"queue": queue_of_work(str(args[0]))}
    return {"queue": QUEUES[name]} if name in QUEUES else None


SCHEMES: Final = ("redis", "rediss", "redis+socket", "sentinel", "memory")
HINT: Final = "redis://HOST:6379/0, or sentinel://HOST:26379,HOST:26379/0?master_name=NAME"

# Longer than any round.
VISIBILITY_TIMEOUT_SEC = 3600
# Socket timeout. Kombu polls for one second at a time; a later answer counts as lost.
ANSWER_SEC = 5.0


def celery_settings(redis_url: str) -> dict[str, object]:
    """Return Celery's settings: JSON, late acknowledgement, no prefetching, no results.

    Raises InvalidRequest unless the URL is that of a supported broker.
    """
    broker_url, sentinel_options = _broker(redis_url)
    return {
        "broker_url": broker_url,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": VISIBILITY_TIMEOUT_SEC,
            "socket_timeout": ANSWER_SEC,
            "health_check_interval": ANSWER_SEC,
            **sentinel_options,
        },
        "task_routes": (route,),
        "task_default_queue": CONTROL,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        "worker_enable_remote_control": False,
        "worker_hijack_root_logger": False,
        # A worker's own prefetch count changes with its places (mallorn.workers.app).
        "worker_enable_prefetch_count_reduction": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,  # threads cannot be cancelled
    }


def _broker(url: str) -> tuple[str, dict[str, object]]:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise InvalidRequest(f"{parts.scheme or 'that'!r} is not the protocol of a broker", hint=HINT)
    if parts.scheme != "sentinel":
        try:
            is_valid = all(urlsplit(part).port != 0 for part in url.split(";"))
        except ValueError:  # whose message may show a part of the password
            is_valid = False
        if not is_valid:
            raise InvalidRequest("MALLORN_REDIS_URL is not the URL of a broker", hint=HINT)
        return url, {}
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if "master_name" not in query:
        raise InvalidRequest("the sentinels' URL lacks the name of the primary that they watch", hint=HINT)
    login, separator, hosts = parts.netloc.rpartition("@")
    urls = [f"sentinel://{login}{separator}{host}{parts.path}" for host in hosts.split(",")]
    options: dict[str, object] = {"master_name": query["master_name"]}
    if "sentinel_password" in query:
        # These options replace the transport's timeouts for connections to sentinels.
        options["sentinel_kwargs"] = {"password": query["sentinel_password"], "socket_timeout": ANSWER_SEC}
    return ";".join(urls), options
