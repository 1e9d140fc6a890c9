"""The Celery app of the control worker and its beat scheduler, on a monotonic clock."""

import math
import time
from functools import lru_cache
from typing import Any, Final

from celery import Celery
from celery.beat import Scheduler

from db.session import Database
from mallorn.core import queues
from mallorn.core.queues import celery_settings
from mallorn.core.settings import settings

NAP_SEC: Final = 0.5
app = Celery("mallorn-control", include=["services.control.celery_tasks"])
app.conf.update(
    celery_settings(settings().redis_url),
    beat_schedule={task: {"task": task, "schedule": every_sec} for task, every_sec in queues.TICKS.items()},
    beat_scheduler="services.control.app:MonotonicBeat",
)


@lru_cache
def database() -> Database:
    """Return this process's database, opened on first use."""
    return Database(settings().database_url)


def send(name: str, *args: object) -> None:
    """Send a task message. Work is stored in SQL, so the sweeper resends lost messages."""
    app.send_task(name, args=args)


class MonotonicBeat(Scheduler):  # type: ignore[misc]
    """Beat scheduler on a monotonic clock: setting the wall clock back does not delay it.

    It stores no state: after a restart, the times of earlier messages do not matter.
    """

    def tick(self, *_: Any, **__: Any) -> float:
        """Send all due tasks; return the seconds to sleep until the next tick."""
        sent = self.__dict__.setdefault("sent_sec", {})
        for name, entry in self.schedule.items():
            if time.monotonic() - sent.get(name, -math.inf) >= entry.schedule.run_every.total_seconds():
                sent[name] = time.monotonic()
                self.apply_entry(entry, producer=self.producer)
        return NAP_SEC
