"""The Celery app of the control worker and of beat."""

from functools import lru_cache

from celery import Celery

from db.session import Database
from mallorn.core import queues
from mallorn.core.broker import celery_settings
from mallorn.core.settings import settings

app = Celery("mallorn-control", include=["services.control.tasks"])
app.conf.update(
    celery_settings(settings().redis_url),
    beat_schedule={task: {"task": task, "schedule": every_sec} for task, every_sec in queues.TICKS.items()},
    beat_scheduler="services.control.beating:Steady",
)


@lru_cache
def database() -> Database:
    """This process's database, opened on first use."""
    return Database(settings().database_url)


def send(name: str, *args: object) -> None:
    """Wake whoever serves a task. SQL holds the work: the sweeper repeats what gets lost here."""
    app.send_task(name, args=args)
