"""Deletes data older than the retention settings allow, in small batches."""

from contextlib import suppress
from typing import Final

from db.repositories.access_control import Audit
from db.repositories.dataset_statistics import Counts
from db.repositories.job_removal import Removals
from db.repositories.workers import Workers
from db.session import Database
from mallorn.core.errors import Conflict, NotFound
from mallorn.core.settings import Settings
from mallorn.core.surviving_loop import Turn
from services.artifact_removal import delete_model, remove_batches, remove_export

# Small batches, so that no writer waits for a long deletion; the next follows in a minute.
AT_A_TIME: Final = 20
ENTRIES_AT_A_TIME: Final = 1000
UNMEASURED_KEPT_DAYS: Final = 1.0  # a worker may still be at work for a job that was deleted
BATCHES_KEPT_DAYS: Final = 60.0  # after the end of their job, which may be resumed
WORKERS_KEPT_DAYS: Final = 7.0  # the fleet's page shows a day


def tidy(database: Database, settings: Settings, turn: Turn | None = None) -> None:
    """Delete expired data of each kind and leftover files, and update measurement counts."""
    turn = turn or Turn()
    if settings.keep_jobs_days:
        with turn.part("could not delete old jobs"):
            _delete_jobs(database, settings.keep_jobs_days)
    if settings.keep_events_days:
        with turn.part("could not delete old events"), database.transaction() as session:
            Removals(session).forget_logs(settings.keep_events_days, AT_A_TIME)
    if settings.keep_models_days:
        with turn.part("could not delete old models"):
            _delete_models(database, settings)
    if settings.keep_audit_days:
        with turn.part("could not delete audit entries"), database.transaction() as session:
            Audit(session).forget(settings.keep_audit_days, ENTRIES_AT_A_TIME)
    with turn.part("could not remove the files of deleted exports"):
        with database.session() as session:
            leftovers = [(job.id, job.export_uri) for job in Removals(session).leftovers(AT_A_TIME)]
        for job_id, uri in leftovers:
            remove_export(database, job_id, uri or "")
    with turn.part("could not remove records of old batches"):
        remove_batches(database, settings.artifacts, BATCHES_KEPT_DAYS)
    with turn.part("could not remove unmeasured jobs"), database.transaction() as session:
        Removals(session).forget_unmeasured(UNMEASURED_KEPT_DAYS, ENTRIES_AT_A_TIME)
    with turn.part("could not delete old workers"), database.transaction() as session:
        Workers(session).forget(WORKERS_KEPT_DAYS, ENTRIES_AT_A_TIME)
    with turn.part("could not update measurement counts"), database.transaction() as session:
        Counts(session).grow()


def _delete_jobs(database: Database, days: float) -> None:
    with database.session() as session:
        job_ids = Removals(session).ended_before(days, AT_A_TIME)
    for job_id in job_ids:
        # A user may have resumed the job since.
        with suppress(Conflict), database.transaction() as session:
            Removals(session).delete(job_id, None)


def _delete_models(database: Database, settings: Settings) -> None:
    with database.session() as session:
        models = Removals(session).unused_models(settings.keep_models_days, AT_A_TIME)
    for model in models:
        # A job may have been submitted for the model since, or its owner may have deleted it.
        with suppress(Conflict, NotFound):
            delete_model(database, settings.artifacts, model.id, model.owner)
