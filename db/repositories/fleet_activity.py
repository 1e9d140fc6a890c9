"""What the fleet did: rounds and the stages of jobs, as spans of time on workers."""

from typing import Any

from sqlalchemy import Row, case, func, insert, or_, select, update

from db.database_clock import now
from db.repositories.base import Repository, owned, until
from db.repositories.measurement_filters import failed
from db.tables import Device, Job, Measurement, Round, StageRun, Task, Worker
from mallorn.core.states import JobState, MeasurementKind, RoundState, StageKind
from mallorn.core.values.fleet import RoundOnWorker, StageOnWorker

PRIVATE = ("job_id", "job_name", "task_index", "task_name")
WAITING = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING)


class Activity(Repository):
    def rounds(self, owner: str | None, since_sec: float, limit: int) -> list[RoundOnWorker]:
        """Of the newest `limit` rounds those that ran within the last `since_sec`, oldest first."""
        since = self.session.scalar(select(until(-since_sec)))  # as a number: then the index is used
        ran = Round.started_at.is_not(None), Round.worker.is_not(None)
        recent = or_(Round.finished_at.is_(None), Round.finished_at > since)
        newest = select(Round.id).where(*ran, recent).order_by(Round.id.desc()).limit(limit).subquery()
        trial = (Measurement.round_id == Round.id) & (Measurement.kind == MeasurementKind.TRIAL)
        failures = case((failed(), 1), else_=0)
        query = (
            select(
                *(Round.id.label("round_id"), Round.state, Round.worker, Round.started_at, Round.finished_at),
                *(owned(owner).label("mine"), Job.id.label("job_id"), Job.name.label("job_name")),
                *(Task.index.label("task_index"), Task.name.label("task_name"), Device.name.label("device")),
                func.count(Measurement.id).label("trials"),
                func.coalesce(func.sum(failures), 0).label("failures"),
                (func.coalesce(func.sum(Measurement.run_ms), 0.0) / 1000).label("measuring_sec"),
            )
            .join(newest, newest.c.id == Round.id)
            .join(Job, Job.id == Round.job_id)
            .join(Task, Task.id == Round.task_id)
            .join(Measurement, trial, isouter=True)
            .join(Device, Device.id == Measurement.device_id, isouter=True)
            .where(Job.deleted_at.is_(None))
            .group_by(Round.id, Job.id, Task.id, Device.id)
            .order_by(Round.started_at, Round.id)
        )
        return [RoundOnWorker.model_validate(without_names(row)) for row in self.session.execute(query)]

    def queued(self) -> dict[str, int]:
        """How many rounds wait for a worker, and how many jobs are in each state that is not an end."""
        waiting = select(func.count()).select_from(Round).where(Round.state == RoundState.QUEUED)
        jobs = select(Job.state, func.count()).where(Job.state.in_(WAITING)).group_by(Job.state)
        return {"rounds": self.session.scalar(waiting) or 0} | dict(self.session.execute(jobs).all())


def without_names(row: Row[*tuple[Any, ...]]) -> dict[str, object]:
    """A row with what is nobody's business but its owner's left out where it is not `mine`."""
    told = dict(row._mapping)
    return told if told.pop("mine") else told | dict.fromkeys(PRIVATE)


#: A worker says that it lives far more often than this.
SILENT_SEC = 60.0
#: Nothing that began earlier than this before a window is looked for in it.
LONGEST_SEC = 6 * 3600.0


class StageRuns(Repository):
    def begin(self, job_id: str, kind: StageKind, worker: str) -> int:
        """A worker begins now; the id to end it with."""
        begun = insert(StageRun).values(job_id=job_id, kind=kind, worker=worker)
        return self.session.scalars(begun.returning(StageRun.id)).one()

    def end(self, run_id: int) -> None:
        """It ended now, however."""
        self.changed(update(StageRun).where(StageRun.id == run_id).values(finished_at=now()))

    def seconds(self, job_id: str, kind: StageKind) -> float:
        """How long a job's stage took, all attempts that ended together."""
        took = func.coalesce(func.sum(StageRun.finished_at - StageRun.started_at), 0.0)
        query = select(took).where(StageRun.job_id == job_id, StageRun.kind == kind)
        return float(self.session.scalar(query) or 0.0)

    def recent(self, owner: str | None, since_sec: float, limit: int) -> list[StageOnWorker]:
        """The newest `limit` that ran within the last `since_sec`, oldest first.

        What nobody ended did so when its worker was last seen, if that is silent now.
        """
        silent = Worker.last_seen < until(-SILENT_SEC)
        lost_at = case((Worker.id.is_(None), StageRun.started_at), (silent, Worker.last_seen))
        ended = func.coalesce(StageRun.finished_at, lost_at)
        query = (
            select(
                *(
                    StageRun.id,
                    StageRun.kind,
                    StageRun.worker,
                    StageRun.started_at,
                    ended.label("finished_at"),
                ),
                *(owned(owner).label("mine"), Job.id.label("job_id"), Job.name.label("job_name")),
            )
            .join(Job, Job.id == StageRun.job_id)
            .join(Worker, Worker.id == StageRun.worker, isouter=True)
            .where(Job.deleted_at.is_(None), StageRun.started_at > until(-since_sec - LONGEST_SEC))
            .where(or_(ended.is_(None), ended > until(-since_sec)))
            .order_by(StageRun.id.desc())
            .limit(limit)
        )
        found = reversed(self.session.execute(query).all())
        return [StageOnWorker.model_validate(without_names(row)) for row in found]
