"""The Celery app of the control worker and of beat, whose clock it sets."""

import math
import time
from functools import lru_cache
from typing import Any, Final

from celery import Celery
from celery.beat import Scheduler

from db.session import Database
from mallorn.core import queues
from mallorn.core.celery_settings import celery_settings
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
    """This process's database, opened on first use."""
    return Database(settings().database_url)


def send(name: str, *args: object) -> None:
    """Wake whoever serves a task. SQL holds the work: the sweeper repeats what gets lost here."""
    app.send_task(name, args=args)


class MonotonicBeat(Scheduler):  # type: ignore[misc]
    """Sends what is due. Set back by an hour, the wall clock that Celery looks at would make it rest for one.

    Nothing is kept: when it last was sent is worth nothing after a restart.
    """

    def tick(self, *_: Any, **__: Any) -> float:
        """One look; how long to sleep until the next."""
        sent = self.__dict__.setdefault("sent_sec", {})
        for name, entry in self.schedule.items():
            if time.monotonic() - sent.get(name, -math.inf) >= entry.schedule.run_every.total_seconds():
                sent[name] = time.monotonic()
                self.apply_entry(entry, producer=self.producer)
        return NAP_SEC
