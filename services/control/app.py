"""The Celery app of the control worker and of beat."""

from functools import lru_cache

from celery import Celery

from db.session import Database
from mallorn.core import queues
from mallorn.core.broker import celery_settings
from mallorn.core.settings import settings

SWEEP_EVERY_SEC = 5.0
REAP_EVERY_SEC = 5.0
TIDY_EVERY_SEC = 60.0
BACK_UP_EVERY_SEC = 600.0  # looks whether the last one is a day old: a service may not run for a day

app = Celery("mallorn-control", include=["services.control.tasks"])
app.conf.update(
    celery_settings(settings().redis_url),
    beat_schedule={
        "sweep": {
            "task": queues.SWEEP,
            "schedule": SWEEP_EVERY_SEC,
            # Beat outlives a control worker that is down: only the latest tick is worth keeping.
            "options": {"expires": SWEEP_EVERY_SEC},
        },
        "reap": {
            "task": queues.REAP,
            "schedule": REAP_EVERY_SEC,
            "options": {"expires": REAP_EVERY_SEC},
        },
        "tidy": {
            "task": queues.TIDY,
            "schedule": TIDY_EVERY_SEC,
            "options": {"expires": TIDY_EVERY_SEC},
        },
        "back up": {
            "task": queues.BACK_UP,
            "schedule": BACK_UP_EVERY_SEC,
            "options": {"expires": BACK_UP_EVERY_SEC},
        },
    },
)


@lru_cache
def database() -> Database:
    """This process's database, opened on first use."""
    return Database(settings().database_url)


def send(name: str, *args: object) -> None:
    """Wake whoever serves a task. SQL holds the work: the sweeper repeats what gets lost here."""
    app.send_task(name, args=args)
