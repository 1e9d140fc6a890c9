"""Resources of the app that requests use: settings, database, artifact store, waker."""

from dataclasses import dataclass, field
from threading import Event
from typing import Annotated, Final, Self

from fastapi import Depends, Request

from db.session import Database
from mallorn.core.settings import Settings
from services.coordinator.web.artifact_store import Store
from services.coordinator.web.authenticator import Authenticator
from services.coordinator.web.event_poller import EventPoller
from services.coordinator.web.quotas import ArrivingBytes, FewAtOnce
from services.coordinator.web.rate_limit import RateLimit
from services.coordinator.web.waker import Waker

# Time limit for a database connection, and for a statement, so that clients soon get an error.
ANSWER_SEC: Final = 4.0
# The same for the few requests with slow statements.
PATIENT_SEC: Final = 60.0


@dataclass(frozen=True, slots=True)
class AppContext:
    """Resources shared by all routes. None of them connects before its first use."""

    settings: Settings
    database: Database
    patient: Database  # for slow statements
    store: Store
    waker: Waker
    door: Authenticator
    rates: RateLimit
    arriving: ArrivingBytes
    few: FewAtOnce  # limits concurrent slow requests
    pulse: EventPoller
    stopping: Event = field(default_factory=Event)  # set at shutdown: event streams end

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        database = Database(settings.database_url, answer_sec=ANSWER_SEC)
        patient = Database(settings.database_url, answer_sec=PATIENT_SEC)
        store, waker = Store(settings.artifacts), Waker(settings.redis_url)
        door, rates = Authenticator(settings, database), RateLimit(settings.quota_requests)
        arriving, stopping = ArrivingBytes(settings.quota_model_bytes), Event()
        pulse = EventPoller(database, stopping)
        return cls(
            settings, database, patient, store, waker, door, rates, arriving, FewAtOnce(), pulse, stopping
        )

    def close(self) -> None:
        self.waker.close()
        self.database.dispose()
        self.patient.dispose()


def get_parts(request: Request) -> AppContext:
    parts: AppContext = request.app.state.parts
    return parts


PartsDep = Annotated[AppContext, Depends(get_parts)]
