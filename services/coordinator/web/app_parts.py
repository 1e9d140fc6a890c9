"""Resources that requests share: settings, database, artifact store, message sender."""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import Annotated, Final, Self

from celery import Celery
from fastapi import Depends, Request
from kombu.exceptions import OperationalError

from mallorn.core import queues
from mallorn.core.errors import MissingPackage, Unavailable
from mallorn.core.settings import Settings
from mallorn.core.states import JobState
from mallorn.core.targets import Target
from mallorn.db.session import Database
from mallorn.services.coordinator.web.artifact_store import Store
from mallorn.services.coordinator.web.authenticator import Authenticator
from mallorn.services.coordinator.web.event_poller import EventPoller
from mallorn.services.coordinator.web.quotas import MOST_AT_ONCE, REMOVE_MODELS, ConcurrentLimit, RateLimit

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
# Time limit for a database connection, and for a statement, so that clients soon get an error.
ANSWER_SEC: Final = 4.0
# The same for the few requests with slow statements.
PATIENT_SEC: Final = 60.0


class Waker:
    """Sends Celery tasks that wake workers and control; without them, work begins later."""

    def __init__(self, redis_url: str) -> None:
        self._celery = Celery("mallorn", set_as_current=False)
        self._celery.conf.update(queues.celery_settings(redis_url))
        self._celery.conf.broker_transport_options |= QUICK

    def wake_for_job(self, state: JobState, job_id: str, target: str) -> None:
        """Wake the process that goes on with a job which has just entered this state."""
        if state is JobState.TUNING:
            self.wake(queues.PLAN, job_id)
        elif state is JobState.FINISHING:
            with suppress(MissingPackage):  # workers look for work once a second, too
                self.wake(queues.WORK, queues.capability(Target(target).toolchain))
        else:
            self.wake(queues.WORK, queues.IMPORT)

    def wake(self, task: str, *args: object) -> None:
        """Send a task by name; if the broker is down, only log a warning."""
        try:
            self._celery.send_task(task, args=list(args), retry=False)
        except OperationalError as error:
            log.warning("could not send %s%r, so it begins later: %s", task, args, error)

    def ping(self) -> None:
        """Raise Unavailable unless the broker answers."""
        try:
            with self._celery.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_TIMEOUT_SEC)
        except OperationalError as error:
            message = f"the broker does not answer: {error}"
            raise Unavailable(message, hint="check MALLORN_REDIS_URL") from None

    def close(self) -> None:
        self._celery.close()


@dataclass(frozen=True, slots=True)
class AppParts:
    """Resources shared by all routes. None of them connects before its first use."""

    settings: Settings
    database: Database
    patient: Database  # for slow statements
    store: Store
    waker: Waker
    door: Authenticator
    rates: RateLimit
    arriving: ConcurrentLimit  # bytes of uploads, apart from stored models
    uploads: ConcurrentLimit
    few: ConcurrentLimit  # slow requests
    pulse: EventPoller
    stopping: Event = field(default_factory=Event)  # set at shutdown: event streams end

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        database = Database(settings.database_url, answer_sec=ANSWER_SEC)
        patient = Database(settings.database_url, answer_sec=PATIENT_SEC)
        store, waker = Store(settings.artifacts), Waker(settings.redis_url)
        door, rates = Authenticator(settings, database), RateLimit(settings.quota_requests)
        quota_bytes = settings.quota_model_bytes
        arriving = ConcurrentLimit(quota_bytes, "bytes of models", REMOVE_MODELS, retry_sec=60)
        uploads = ConcurrentLimit(settings.quota_uploads, "running uploads")
        few = ConcurrentLimit(MOST_AT_ONCE, "slow requests")
        stopping = Event()
        pulse = EventPoller(database, stopping)
        return cls(
            settings, database, patient, store, waker, door, rates, arriving, uploads, few, pulse, stopping
        )

    def close(self) -> None:
        self.waker.close()
        self.database.dispose()
        self.patient.dispose()


def get_parts(request: Request) -> AppParts:
    parts: AppParts = request.app.state.parts
    return parts


PartsDep = Annotated[AppParts, Depends(get_parts)]
