"""Archive and delete jobs; delete logs, exports, models and rows kept long enough."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select, update

from mallorn.core.errors import Conflict
from mallorn.core.states import JobState
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import UNEXPLAINED, seconds_from_now
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.leases import FinishSteps
from mallorn.db.repositories.targets import Targets
from mallorn.db.repositories.workloads import KEPT
from mallorn.db.tables import (
    Event,
    FeatureRow,
    FinishStep,
    Job,
    JobLabel,
    LeaseRow,
    Measurement,
    Model,
    Round,
    Schedule,
    StageRun,
    Task,
    Workload,
)

ENDED: Final = tuple(state for state in JobState if state.is_final)
# Texts and reports that the deletion of a job clears.
WORDS: Final[dict[str, object]] = {
    "name": "",
    **UNEXPLAINED,
    "suggest": None,
    "tuning_ended": "",
    "graph": None,
    "report": None,
    "warnings": [],
    "idempotency_key": None,
    "request_hash": None,
}
_LEFT_OVER: Final = (
    Job.export_uri.is_not(None),
    or_(Job.deleted_at.is_not(None), Job.export_deleted_at.is_not(None)),
    Job.state.in_(ENDED),
)


class Removals(Jobs):
    """Archives and deletes jobs, but never their measurements and schedules (ADR 0013)."""

    def archive(self, job_id: str, owner: str | None) -> Job:
        """Archive an ended job. Raises NotFound if there is none, Conflict if not ended."""
        self._change_ended(job_id, owner, "archived", archived_at=now())
        return self.get(job_id, owner)

    def unarchive(self, job_id: str, owner: str | None) -> Job:
        """Return an archived job to the list. Raises NotFound if there is no such job."""
        self.get(job_id, owner)
        self.execute_and_count(update(Job).where(Job.id == job_id).values(archived_at=None))
        return self.get(job_id, owner)

    def delete(self, job_id: str, owner: str | None) -> None:
        """Delete an ended job: hide its row, clear texts and logs, keep measurements.

        Cached features of workloads that only deleted private jobs used are deleted, too.
        The caller removes its exported files, once `clear_export_uri` allows it. Raises
        NotFound if there is no such job, Conflict if it has not ended.
        """
        self._change_ended(job_id, owner, "deleted", deleted_at=now(), **WORDS)
        rounds = update(Round).where(Round.job_id == job_id)
        self.execute_and_count(rounds.values(reason={}, error="", worker=None))
        self._forget_log(job_id)
        self.execute_and_count(delete(JobLabel).where(JobLabel.job_id == job_id))
        # Delete features of workloads that only private jobs used, and none still does.
        living = select(Task.id).join(Job).where(Job.deleted_at.is_(None), Task.workload_id == Workload.id)
        ids = select(Task.workload_id).where(Task.job_id == job_id)
        unused = select(Workload.id).where(Workload.id.in_(ids), Workload.kept_upto == KEPT, ~exists(living))
        self.execute_and_count(delete(FeatureRow).where(FeatureRow.workload_id.in_(unused)))

    def _change_ended(self, job_id: str, owner: str | None, verb: str, **changes: object) -> None:
        job = self.get(job_id, owner)
        conditions = Job.id == job_id, Job.state.in_(ENDED), Job.deleted_at.is_(None)
        if not self.execute_and_count(update(Job).where(*conditions).values(changes)):
            message = f"job {job_id} is {job.state}; only a job that has ended is {verb}"
            raise Conflict(message, hint=f"mallorn jobs cancel {job_id}")

    def _forget_log(self, job_id: str) -> None:
        self.execute_and_count(delete(Event).where(Event.job_id == job_id))
        self.execute_and_count(delete(StageRun).where(StageRun.job_id == job_id))
        FinishSteps(self.session).forget(job_id)

    def delete_export(self, job_id: str, owner: str | None) -> None:
        """Mark the exported files of an ended job as deleted; the next cleanup removes them.

        Raises NotFound if there is no job, Conflict if it has not ended or has no such files.
        """
        job = self.get(job_id, owner)
        if job.export_uri is None or job.export_deleted_at is not None:
            raise Conflict(f"job {job_id} has no exported files", hint=f"mallorn show {job_id}")
        self._change_ended(job_id, owner, "rid of its exported files", export_deleted_at=now())

    def list_leftover_exports(self, limit: int) -> Sequence[Job]:
        """Return ended jobs whose exported files must go: files or job were deleted."""
        query = select(Job).where(*_LEFT_OVER).order_by(Job.id)
        return self.session.scalars(query.limit(limit)).all()

    def clear_export_uri(self, job_id: str) -> bool:
        """Clear a job's export URI; return False if it was resumed, so its files stay."""
        update_query = update(Job).where(Job.id == job_id, *_LEFT_OVER).values(export_uri=None)
        return self.execute_and_count(update_query) == 1

    def ended_before(self, days: float, limit: int) -> Sequence[str]:
        """Return `limit` ids of jobs that ended over `days` days ago, oldest first."""
        query = select(Job.id).where(_has_ended_before(days), Job.deleted_at.is_(None))
        return self.session.scalars(query.order_by(Job.finished_at).limit(limit)).all()

    def filter_ended(self, job_ids: Collection[str], days: float) -> Sequence[str]:
        """Return which of these jobs were deleted, or ended more than `days` days ago."""
        is_over = self.is_among(Job.id, job_ids), or_(Job.deleted_at.is_not(None), _has_ended_before(days))
        return self.session.scalars(select(Job.id).where(*is_over)).all()

    def forget_logs(self, days: float, limit: int) -> Sequence[str]:
        """Delete logs and search states of jobs ended over `days` days ago; return ids."""
        has_events = exists(select(Event.seq).where(Event.job_id == Job.id).correlate(Job))
        conditions = _has_ended_before(days), has_events
        query = select(Job.id).where(*conditions).order_by(Job.finished_at).limit(limit)
        job_ids = self.session.scalars(query).all()
        for job_id in job_ids:
            self._forget_log(job_id)
        return job_ids

    def delete_unmeasured_jobs(self, days: float, limit: int) -> int:
        """Delete rows of jobs that were deleted over `days` days ago and measured nothing.

        Also delete targets to which no row refers any more. Return the number of jobs.
        """
        deleted = (
            Job.deleted_at < seconds_from_now(-days * 86400),
            Job.context_id.is_(None),
            Job.export_uri.is_(None),
        )
        rows = (Measurement.job_id, Round.job_id, Schedule.job_id)
        unused = [~exists().where(column == Job.id) for column in rows]
        query = select(Job.id, Job.target_id).where(*deleted, *unused).order_by(Job.deleted_at).limit(limit)
        jobs = self.session.execute(query).all()
        job_ids = [job_id for job_id, _ in jobs]
        for table in (FinishStep, Event, StageRun, LeaseRow, Task):
            self.execute_and_count(delete(table).where(self.is_among(table.job_id, job_ids)))
        self.execute_and_count(delete(Job).where(self.is_among(Job.id, job_ids)))
        Targets(self.session).forget_unused(target_id for _, target_id in jobs)
        return len(jobs)

    def unused_models(self, days: float, limit: int) -> Sequence[Model]:
        """Return models older than `days` days to which no job of their owner refers."""
        owners_job = Job.model_id == Model.id, Job.owner == Model.owner, Job.deleted_at.is_(None)
        is_used = exists(select(Job.id).where(*owners_job).correlate(Model))
        models = select(Model).where(Model.created_at < seconds_from_now(-days * 86400), ~is_used)
        return self.session.scalars(models.order_by(Model.created_at).limit(limit)).all()


def _has_ended_before(days: float) -> ColumnElement[bool]:
    return and_(Job.finished_at < seconds_from_now(-days * 86400), Job.state.in_(ENDED))
