"""The Celery app of the control process, and the timer that sends its periodic tasks."""

import time
from functools import lru_cache
from typing import Final

from celery import Celery

from mallorn.core import queues
from mallorn.core.log_setup import Turn
from mallorn.core.queues import celery_settings
from mallorn.core.settings import settings
from mallorn.db.session import Database

TIMER_STEP_SEC: Final = 0.5
app = Celery("mallorn-control", include=["mallorn.services.control.celery_tasks"])
app.conf.update(celery_settings(settings().redis_url))


@lru_cache
def database() -> Database:
    """Return this process's database, opened on first use."""
    return Database(settings().database_url)


def send(name: str, *args: object) -> None:
    """Send a Celery task. Lost messages are sent again later, as SQL stores all work."""
    app.send_task(name, args=args)


def send_periodic_tasks() -> None:
    """Send every periodic task at once, and then once per period; never return.

    Every control process does so; `LoopTicks` makes them drop messages that come too early.
    """
    next_sec = dict.fromkeys(queues.TICKS, 0.0)
    while True:
        for task, period_sec in queues.TICKS.items():
            if time.monotonic() >= next_sec[task]:
                next_sec[task] = time.monotonic() + period_sec
                with Turn().log_part_errors("could not send a periodic task"):
                    send(task)
        time.sleep(TIMER_STEP_SEC)
