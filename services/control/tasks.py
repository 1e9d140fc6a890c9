"""The Celery tasks of the queue `control`: thin doors into planning, sweeping and reaping."""

import logging
import uuid

from db.backups import take_daily
from mallorn.core import queues
from mallorn.core.errors import StorageFull
from mallorn.core.logs import about
from mallorn.core.settings import settings
from mallorn.core.waiting import Here
from services.control.app import app, database, send
from services.control.planning import plan_job
from services.control.reaping import reap
from services.control.sweeping import sweep
from services.control.tidying import tidy
from services.control.waiting import Patience

log = logging.getLogger(__name__)
HOLDER = f"control-{uuid.uuid4().hex[:8]}"
BUSY_RETRY_SEC = 1.0
PATIENCE = Patience(settings().device_wait_sec, Here.of(settings()))


@app.task(name=queues.PLAN)
def plan(job_id: str) -> None:
    """Open the next rounds of a job, or end its tuning."""
    with about(job=job_id):
        messages = plan_job(database(), job_id, HOLDER, PATIENCE)
    if messages is None:
        # Another control worker plans this job right now and may have read the state before our news.
        app.send_task(queues.PLAN, args=[job_id], countdown=BUSY_RETRY_SEC)
        return
    for name, *args in messages:
        send(name, *args)


@app.task(name=queues.SWEEP)
def sweep_lost_messages() -> None:
    """Repeat messages that the broker may have lost."""
    for name, *args in sweep(database()):
        send(name, *args)


@app.task(name=queues.REAP)
def reap_expired_leases() -> None:
    """Return the work of dead workers to the queue."""
    for name, *args in reap(database()):
        send(name, *args)


@app.task(name=queues.TIDY)
def tidy_up() -> None:
    """Delete what has been kept for long enough."""
    tidy(database(), settings())


@app.task(name=queues.BACK_UP)
def back_up() -> None:
    """Copy a SQLite database once a day."""
    try:
        made = take_daily(settings().database_url, settings().keep_backups)
    except StorageFull as error:
        log.error("%s   next: %s", error.message, error.hint)
        return
    if made is not None:
        log.info("the database is backed up in %s", made)
