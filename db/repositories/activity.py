"""What the fleet did: who ran which round, on which device, and how much of it was measuring."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, or_, select

from db.repositories.base import Repository, owned, until
from db.tables import Device, Job, Measurement, Round, Task
from mallorn.core.outcomes import Outcome
from mallorn.core.states import JobState, MeasurementKind, RoundState

WAITING = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING)


@dataclass(frozen=True, slots=True)
class Stint:
    """The last attempt at a round, as far as it came on one device; `device` None: nothing was timed yet."""

    round_id: int
    job_id: str
    job_name: str
    mine: bool  # the owner's who asked
    task_index: int
    task_name: str
    state: str
    worker: str
    device: str | None
    trials: int
    failures: int
    measuring_sec: float
    started_at: float
    finished_at: float | None


class Activity(Repository):
    """Reads the newest rounds as spans of time."""

    def stints(self, owner: str | None, since_sec: float, limit: int) -> Sequence[Stint]:
        """Of the newest `limit` rounds those that ran within the last `since_sec`, oldest first."""
        since = until(-since_sec)
        ran = Round.started_at.is_not(None), Round.worker.is_not(None)
        recent = or_(Round.finished_at.is_(None), Round.finished_at > since)
        newest = select(Round.id).where(*ran, recent).order_by(Round.id.desc()).limit(limit).subquery()
        trial = (Measurement.round_id == Round.id) & (Measurement.kind == MeasurementKind.TRIAL)
        failed = case((Measurement.outcome != Outcome.OK, 1), else_=0)
        query = (
            select(
                *(Round.id, Job.id, Job.name, owned(owner), Task.index, Task.name, Round.state, Round.worker),
                *(Device.name, func.count(Measurement.id), func.coalesce(func.sum(failed), 0)),
                func.coalesce(func.sum(Measurement.run_ms), 0.0) / 1000,
                *(Round.started_at, Round.finished_at),
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
        return [Stint(*row) for row in self.session.execute(query)]

    def queued(self) -> dict[str, int]:
        """How many rounds wait for a worker, and how many jobs are in each state that is not an end."""
        waiting = select(func.count()).select_from(Round).where(Round.state == RoundState.QUEUED)
        jobs = select(Job.state, func.count()).where(Job.state.in_(WAITING)).group_by(Job.state)
        return {"rounds": self.session.scalar(waiting) or 0} | dict(self.session.execute(jobs).all())
