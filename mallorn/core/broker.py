"""Celery configuration shared by all who send or serve, as plain data."""

from typing import Any
from urllib.parse import urlsplit

from mallorn.core import queues
from mallorn.core.errors import InvalidRequest

# Above the longest round: a message that outlives its worker comes back late, the reaper long before it.
VISIBILITY_TIMEOUT_SEC = 3600
# Kombu asks for messages a second at a time. An answer that is swallowed on its way is not waited for longer.
ANSWER_SEC = 5.0


def celery_settings(redis_url: str) -> dict[str, Any]:
    """JSON only, acknowledged late, one message at a time, no results: the broker merely wakes workers."""
    for each in redis_url.split(";"):
        try:
            known = bool(urlsplit(each).scheme) and urlsplit(each).port != 0
        except ValueError:  # which tells of the password what it takes for a port
            known = False
        if not known:
            raise InvalidRequest("MALLORN_REDIS_URL is not the URL of a broker", hint="redis://HOST:6379/0")
    return {
        "broker_url": redis_url,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": VISIBILITY_TIMEOUT_SEC,
            "socket_timeout": ANSWER_SEC,
            "health_check_interval": ANSWER_SEC,
        },
        "task_routes": queues.ROUTES,
        "task_default_queue": queues.CONTROL,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        "worker_enable_remote_control": False,
        "worker_hijack_root_logger": False,
        "worker_cancel_long_running_tasks_on_connection_loss": True,
    }
