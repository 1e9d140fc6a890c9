"""Celery configuration shared by all who send or serve, as plain data."""

from typing import Final
from urllib.parse import parse_qs, urlsplit

from mallorn.core import queues
from mallorn.core.errors import InvalidRequest

SCHEMES: Final = ("redis", "rediss", "redis+socket", "sentinel", "memory")
HINT: Final = "redis://HOST:6379/0, or sentinel://HOST:26379,HOST:26379/0?master_name=NAME"

# Above the longest round: a message that outlives its worker comes back late, the reaper long before it.
VISIBILITY_TIMEOUT_SEC = 3600
# Kombu asks for messages a second at a time. An answer that is swallowed on its way is not waited for longer.
ANSWER_SEC = 5.0


def celery_settings(redis_url: str) -> dict[str, object]:
    """JSON only, acknowledged late, one message at a time, no results: the broker merely wakes workers.

    Raises InvalidRequest for a URL that names no broker of ours.
    """
    broker_url, of_sentinel = _place(redis_url)
    return {
        "broker_url": broker_url,
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": VISIBILITY_TIMEOUT_SEC,
            "socket_timeout": ANSWER_SEC,
            "health_check_interval": ANSWER_SEC,
            **of_sentinel,
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


def _place(url: str) -> tuple[str, dict[str, object]]:
    """The URL that kombu understands, and what it wants to know of sentinels beside it."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise InvalidRequest(f"{parts.scheme or 'that'!r} is no protocol of a broker", hint=HINT)
    if parts.scheme != "sentinel":
        try:
            known = all(urlsplit(each).port != 0 for each in url.split(";"))
        except ValueError:  # which tells of the password what it takes for a port
            known = False
        if not known:
            raise InvalidRequest("MALLORN_REDIS_URL is not the URL of a broker", hint=HINT)
        return url, {}
    asked = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    if "master_name" not in asked:
        raise InvalidRequest("the sentinels' URL lacks the name of what they watch", hint=HINT)
    login, at, hosts = parts.netloc.rpartition("@")
    places = [f"sentinel://{login}{at}{host}{parts.path}" for host in hosts.split(",")]
    options: dict[str, object] = {"master_name": asked["master_name"]}
    if "sentinel_password" in asked:
        # What is said for them replaces the timeouts that they share with the broker otherwise.
        options["sentinel_kwargs"] = {"password": asked["sentinel_password"], "socket_timeout": ANSWER_SEC}
    return ";".join(places), options
