"""Sends Celery tasks to workers and control, after the commit of the work."""

import logging
from typing import Final

from celery import Celery
from kombu.exceptions import OperationalError

from mallorn.core.errors import Unavailable
from mallorn.core.queues import celery_settings

CONNECT_TIMEOUT_SEC: Final = 2.0
# Without these, kombu retries for ever while a request waits.
QUICK: Final = {
    "max_retries": 1,
    "interval_start": 0.0,
    "interval_step": 0.0,
    "interval_max": 0.0,
    "socket_connect_timeout": CONNECT_TIMEOUT_SEC,
    "socket_timeout": CONNECT_TIMEOUT_SEC,
}
log = logging.getLogger(__name__)


class Waker:
    """Sends task messages that contain ids. The sweeper resends lost messages."""

    def __init__(self, redis_url: str) -> None:
        self._celery = Celery("mallorn", set_as_current=False)
        self._celery.conf.update(celery_settings(redis_url))
        self._celery.conf.broker_transport_options |= QUICK

    def wake(self, task: str, *args: object) -> None:
        """Send a task by name; if the broker is down, only log a warning."""
        try:
            self._celery.send_task(task, args=list(args), retry=False)
        except OperationalError as error:
            log.warning("could not send %s%r, the sweeper will: %s", task, args, error)

    def ping(self) -> None:
        """Raise Unavailable unless the broker answers."""
        try:
            with self._celery.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_TIMEOUT_SEC)
        except OperationalError as error:
            raise Unavailable(
                f"the broker does not answer: {error}", hint="check MALLORN_REDIS_URL"
            ) from None

    def close(self) -> None:
        self._celery.close()
