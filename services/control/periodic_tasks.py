"""The periodic work of control. It looks for jobs to plan, takes back the work of dead
workers, and deletes expired data."""

from contextlib import suppress
from typing import Final

from mallorn.core import queues
from mallorn.core.errors import Conflict, NotFound
from mallorn.core.log_setup import Turn
from mallorn.core.settings import Settings
from mallorn.core.states import WorkKind
from mallorn.db.repositories.access_control import Audit, SignIns
from mallorn.db.repositories.archive_and_delete_jobs import Removals
from mallorn.db.repositories.claim_and_release_work import WorkItems
from mallorn.db.repositories.control_loop_ticks import GAP_SEC, LoopTicks
from mallorn.db.repositories.dataset_statistics import Counts
from mallorn.db.repositories.fair_shares import FairShares
from mallorn.db.repositories.leases import Leases
from mallorn.db.repositories.rounds import Rounds
from mallorn.db.repositories.workers import Workers
from mallorn.db.session import Database
from mallorn.services.artifact_removal import (
    delete_model,
    remove_export,
    remove_old_batch_records,
    remove_stale_parts,
)

# Planning a job costs milliseconds, so a sweep plans only the next few jobs of each target.
LOOKS_PER_TARGET = 4


def collect_jobs_to_plan(database: Database, turn: Turn | None = None) -> list[queues.Message]:
    """Return messages to plan jobs; withdraw unneeded rounds."""
    turn, messages = turn or Turn(), list[queues.Message]()
    with turn.log_part_errors("could not look for jobs to plan"), database.session() as session:
        job_ids = FairShares(session).list_jobs_to_plan(LOOKS_PER_TARGET)
        messages += [(queues.PLAN, job_id) for job_id in job_ids]
    with turn.log_part_errors("unneeded rounds are not withdrawn"), database.transaction() as session:
        Rounds(session).cancel_queued()
    return messages


def requeue_expired_leases(
    database: Database,
    turn: Turn | None = None,
    lease_sec: float = Settings.model_fields["lease_sec"].default,
) -> list[queues.Message]:
    """Requeue work with expired leases, and give up work that lost too many workers.

    Returns messages for jobs to plan. After a pause of control or a step
    of the clock, leases of live workers may have expired: the first calls only let workers
    renew them.
    """
    turn = turn or Turn()
    if turn.steady_sec < min(lease_sec / 3, GAP_SEC):  # the second turn counts, however rare
        with database.transaction() as session:
            LoopTicks(session).correct_future_times(lease_sec)
        return []
    with database.session() as session:
        jobs = Leases(session).jobs_with_expired_leases()
    messages: list[queues.Message] = []
    for job_id in jobs:
        if not turn.away:
            with turn.log_part_errors("could not reclaim lost work"), database.transaction() as session:
                for loss in WorkItems(session).end_expired_leases(job_id):
                    if loss.is_given_up and loss.hold.item.kind is WorkKind.ROUND:
                        messages.append((queues.PLAN, loss.job_id))
    return messages


# Few rows at a time, so that no writer waits for a long deletion; the next follows in a minute.
AT_A_TIME: Final = 20
ENTRIES_AT_A_TIME: Final = 1000
UNMEASURED_KEPT_DAYS: Final = 1.0  # a worker may still be at work for a job that was deleted
BATCHES_KEPT_DAYS: Final = 60.0  # after the end of their job, which may be resumed
UPLOADS_KEPT_DAYS: Final = 1.0  # after the last part; until then the client may resume
WORKERS_KEPT_DAYS: Final = 7.0  # the fleet's page shows a day


def delete_expired_data(database: Database, settings: Settings, turn: Turn | None = None) -> None:
    """Delete data past its retention time and leftover files; update measurement counts."""
    turn = turn or Turn()
    if settings.keep_jobs_days:
        with turn.log_part_errors("could not delete old jobs"):
            with database.session() as session:
                job_ids = Removals(session).ended_before(settings.keep_jobs_days, AT_A_TIME)
            for job_id in job_ids:
                # A user may have resumed the job since.
                with suppress(Conflict), database.transaction() as session:
                    Removals(session).delete(job_id, None)
    if settings.keep_events_days:
        with turn.log_part_errors("could not delete old events"), database.transaction() as session:
            Removals(session).forget_logs(settings.keep_events_days, AT_A_TIME)
    if settings.keep_models_days:
        with turn.log_part_errors("could not delete old models"):
            with database.session() as session:
                models = Removals(session).unused_models(settings.keep_models_days, AT_A_TIME)
            for model in models:
                # A job may have been submitted for the model since, or its owner may have deleted it.
                with suppress(Conflict, NotFound):
                    delete_model(database, settings.artifacts, model.id, model.owner)
    if settings.keep_audit_days:
        with turn.log_part_errors("could not delete audit entries"), database.transaction() as session:
            Audit(session).delete_old_entries(settings.keep_audit_days, ENTRIES_AT_A_TIME)
    if settings.keep_audit_entries:
        with (
            turn.log_part_errors("could not delete surplus audit entries"),
            database.transaction() as session,
        ):
            Audit(session).delete_surplus_entries(settings.keep_audit_entries, ENTRIES_AT_A_TIME)
    with turn.log_part_errors("could not delete expired sign-ins"), database.transaction() as session:
        SignIns(session).delete_expired()
    with turn.log_part_errors("could not remove the files of deleted exports"):
        with database.session() as session:
            jobs = Removals(session).list_leftover_exports(AT_A_TIME)
            leftovers = [(job.id, job.export_uri) for job in jobs]
        for job_id, uri in leftovers:
            remove_export(database, job_id, uri or "")
    with turn.log_part_errors("could not remove records of old batches"):
        remove_old_batch_records(database, settings.artifacts, BATCHES_KEPT_DAYS)
    with turn.log_part_errors("could not delete unfinished uploads"):
        remove_stale_parts(settings.artifacts, UPLOADS_KEPT_DAYS)
    with turn.log_part_errors("could not remove unmeasured jobs"), database.transaction() as session:
        Removals(session).delete_unmeasured_jobs(UNMEASURED_KEPT_DAYS, ENTRIES_AT_A_TIME)
    with turn.log_part_errors("could not delete old workers"), database.transaction() as session:
        Workers(session).delete_unseen(WORKERS_KEPT_DAYS, ENTRIES_AT_A_TIME)
    with turn.log_part_errors("could not update measurement counts"), database.transaction() as session:
        Counts(session).count_new_rows()
