"""Celery tasks of the queue `control`: planning of jobs, and periodic work. Additional
arguments in messages of newer versions (`_newer`) are ignored."""

import logging
import uuid
from collections.abc import Callable, Sequence

from mallorn.core import queues
from mallorn.core.device_wait_hint import ServiceAddress
from mallorn.core.errors import StorageFull
from mallorn.core.log_setup import Turn, log_facts
from mallorn.core.settings import settings
from mallorn.db.backups import take_daily_backup
from mallorn.db.repositories.control_loop_ticks import LoopTicks
from mallorn.services.control.app import app, database, send
from mallorn.services.control.periodic_tasks import (
    collect_jobs_to_plan,
    delete_expired_data,
    requeue_expired_leases,
)
from mallorn.services.control.plan_target import plan_target
from mallorn.services.control.wait_for_device import WaitLimit

log = logging.getLogger(__name__)
HOLDER = f"control-{uuid.uuid4().hex[:8]}"
PATIENCE = WaitLimit(settings().device_wait_sec, ServiceAddress.of(settings()))


@app.task(name=queues.PLAN)
def plan_target_of_job(job_id: str, *_newer: object) -> None:
    """Plan a job and others of its target: open rounds of measurements, or end tuning."""
    with log_facts(job=job_id):
        messages = plan_target(database(), job_id, HOLDER, PATIENCE)
    for name, *args in messages or ():  # None: another process plans this target
        send(name, *args)


@app.task(name=queues.SWEEP)
def sweep_lost_messages(*_newer: object) -> None:
    """Plan jobs that have news whose message the broker may have lost."""
    _run_if_due(queues.SWEEP, lambda turn: collect_jobs_to_plan(database(), turn))


@app.task(name=queues.REAP)
def reap_expired_leases(*_newer: object) -> None:
    """Return the work of dead workers to the queue."""
    _run_if_due(queues.REAP, lambda turn: requeue_expired_leases(database(), turn, settings().lease_sec))


@app.task(name=queues.TIDY)
def delete_old_data(*_newer: object) -> None:
    """Delete old data, by the retention settings and fixed ages, and update row counts."""
    _run_if_due(queues.TIDY, lambda turn: delete_expired_data(database(), settings(), turn))


@app.task(name=queues.BACK_UP)
def back_up(*_newer: object) -> None:
    """Copy a SQLite database once a day."""
    _run_if_due(queues.BACK_UP, _back_up)


def _run_if_due(loop: str, act: Callable[[Turn], Sequence[queues.Message] | None]) -> None:
    """Run a periodic task, unless its last run began less than a period ago."""
    with database().transaction() as session:
        steady_sec = LoopTicks(session).begin_turn(loop, queues.TICKS[loop])
    if steady_sec is None:
        return
    turn = Turn(steady_sec)
    for name, *args in act(turn) or ():
        send(name, *args)
    if turn.whole:
        with database().transaction() as session:
            LoopTicks(session).record_turn_end(loop)


def _back_up(_turn: Turn) -> None:
    try:
        backup_path = take_daily_backup(settings().database_url, settings().keep_backups)
    except StorageFull as error:
        log.error("%s   next: %s", error.message, error.hint)
        return
    if backup_path is not None:
        log.info("the database is backed up in %s", backup_path)
