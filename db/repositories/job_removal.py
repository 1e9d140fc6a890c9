"""Jobs that are set aside or deleted: what goes, what stays, and what has been kept for long enough."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select, update

from db.database_clock import now
from db.repositories.base import said, until
from db.repositories.jobs import Jobs
from db.repositories.search_and_finish_states import FinishSteps
from db.repositories.targets import Targets
from db.repositories.workloads import KEPT
from db.tables import (
    Event,
    FeatureRow,
    FinishStep,
    Job,
    LeaseRow,
    Measurement,
    Model,
    Round,
    Schedule,
    SearchState,
    StageRun,
    Task,
    Workload,
)
from mallorn.core.errors import Conflict
from mallorn.core.states import JobState

ENDED: Final = tuple(state for state in JobState if state.final)
# What people said and read of a job; what its measurements need to be understood is kept.
WORDS: Final[dict[str, object]] = {
    "name": "",
    **said(""),
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
    """Archives and deletes. Measurements and schedules are the dataset: no deletion takes one (ADR 0013)."""

    def archive(self, job_id: str, owner: str | None) -> Job:
        """Set an ended job aside. Raises NotFound; Conflict while it goes on."""
        self._change_ended(job_id, owner, "archived", archived_at=now())
        return self.get(job_id, owner)

    def unarchive(self, job_id: str, owner: str | None) -> Job:
        """Put it back into the list. Raises NotFound."""
        self.get(job_id, owner)
        self.changed(update(Job).where(Job.id == job_id).values(archived_at=None))
        return self.get(job_id, owner)

    def delete(self, job_id: str, owner: str | None) -> None:
        """Leave a tombstone of an ended job, of which nobody sees anything but its measurements.

        Its exported files are the caller's to remove, once `forget_export` allows it. Raises NotFound;
        Conflict while it goes on.
        """
        self._change_ended(job_id, owner, "deleted", deleted_at=now(), **WORDS)
        told = update(Round).where(Round.job_id == job_id)
        self.changed(told.values(reason={}, error="", worker=None))
        self._forget_log(job_id)
        # Computed of programs that only private jobs brought, and that no job has any more.
        living = select(Task.id).join(Job).where(Job.deleted_at.is_(None), Task.workload_id == Workload.id)
        own = select(Task.workload_id).where(Task.job_id == job_id)
        unused = select(Workload.id).where(Workload.id.in_(own), Workload.kept_upto == KEPT, ~exists(living))
        self.changed(delete(FeatureRow).where(FeatureRow.workload_id.in_(unused)))

    def _change_ended(self, job_id: str, owner: str | None, verb: str, **changes: object) -> None:
        job = self.get(job_id, owner)
        ended = Job.id == job_id, Job.state.in_(ENDED), Job.deleted_at.is_(None)
        if not self.changed(update(Job).where(*ended).values(changes)):
            raise Conflict(
                f"job {job_id} is {job.state}; only a job that has ended is {verb}",
                hint=f"mallorn cancel {job_id}",
            )

    def _forget_log(self, job_id: str) -> None:
        self.changed(delete(Event).where(Event.job_id == job_id))
        self.changed(delete(StageRun).where(StageRun.job_id == job_id))
        FinishSteps(self.session).forget(job_id)
        rounds = select(Round.id).where(Round.job_id == job_id)
        self.changed(delete(SearchState).where(SearchState.round_id.in_(rounds)))

    def delete_export(self, job_id: str, owner: str | None) -> None:
        """Nobody loads the exported files of an ended job from now on; they go as those of a deleted job do.

        Raises NotFound; Conflict while it goes on, and where there are none.
        """
        job = self.get(job_id, owner)
        if job.export_uri is None or job.export_deleted_at is not None:
            raise Conflict(f"job {job_id} has no exported files", hint=f"mallorn show {job_id}")
        self._change_ended(job_id, owner, "rid of its exported files", export_deleted_at=now())

    def leftovers(self, limit: int) -> Sequence[Job]:
        """Jobs whose exported files are still to be removed: they were deleted, or the job was."""
        query = select(Job).where(*_LEFT_OVER).order_by(Job.id)
        return self.session.scalars(query.limit(limit)).all()

    def forget_export(self, job_id: str) -> bool:
        """Whether the files may go, with this transaction; not where the job exports anew."""
        return self.changed(update(Job).where(Job.id == job_id, *_LEFT_OVER).values(export_uri=None)) == 1

    def ended_before(self, days: float, limit: int) -> Sequence[str]:
        """Jobs that ended longer ago, the oldest first."""
        old = _has_ended_before(days), Job.deleted_at.is_(None)
        return self.session.scalars(select(Job.id).where(*old).order_by(Job.finished_at).limit(limit)).all()

    def over(self, job_ids: Collection[str], days: float) -> Sequence[str]:
        """Return those of the jobs that were deleted, or that ended so many days ago."""
        is_over = self.among(Job.id, job_ids), or_(Job.deleted_at.is_not(None), _has_ended_before(days))
        return self.session.scalars(select(Job.id).where(*is_over)).all()

    def forget_logs(self, days: float, limit: int) -> Sequence[str]:
        """Delete logs, and searchers' states, of jobs that ended longer ago; which jobs it was."""
        kept = exists(select(Event.seq).where(Event.job_id == Job.id).correlate(Job))
        old = _has_ended_before(days), kept
        query = select(Job.id).where(*old).order_by(Job.finished_at).limit(limit)
        found = self.session.scalars(query).all()
        for job_id in found:
            self._forget_log(job_id)
        return found

    def forget_unmeasured(self, days: float, limit: int) -> int:
        """Delete the rows of jobs that were deleted longer ago and measured nothing; return how many.

        Targets that no other row names go with them: requests that cost little leave nothing for good.
        """
        never = Job.deleted_at < until(-days * 86400), Job.context_id.is_(None), Job.export_uri.is_(None)
        rows = (Measurement.job_id, Round.job_id, Schedule.job_id)
        unused = [~exists().where(column == Job.id) for column in rows]
        query = select(Job.id, Job.target_id).where(*never, *unused).order_by(Job.deleted_at).limit(limit)
        found = self.session.execute(query).all()
        job_ids = [job_id for job_id, _ in found]
        for table in (FinishStep, Event, StageRun, LeaseRow, Task):
            self.changed(delete(table).where(self.among(table.job_id, job_ids)))
        self.changed(delete(Job).where(self.among(Job.id, job_ids)))
        Targets(self.session).forget_unused(target_id for _, target_id in found)
        return len(found)

    def unused_models(self, days: float, limit: int) -> Sequence[Model]:
        """Models uploaded longer ago that none of their owner's jobs refers to."""
        own = Job.model_id == Model.id, Job.owner == Model.owner, Job.deleted_at.is_(None)
        used = exists(select(Job.id).where(*own).correlate(Model))
        old = select(Model).where(Model.created_at < until(-days * 86400), ~used)
        return self.session.scalars(old.order_by(Model.created_at).limit(limit)).all()


def _has_ended_before(days: float) -> ColumnElement[bool]:
    return and_(Job.finished_at < until(-days * 86400), Job.state.in_(ENDED))
