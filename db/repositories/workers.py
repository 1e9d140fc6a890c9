"""Workers: their descriptions, when they were last seen, and the time spans of their work."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Row, and_, case, delete, func, insert, or_, select, update

from mallorn.core.states import JobState, MeasurementKind, RoundState, StageKind
from mallorn.core.values.fleet import RoundOnWorker, StageOnWorker, WorkerInfo
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository, is_owned_by, seconds_from_now
from mallorn.db.repositories.measurement_filters import has_failed
from mallorn.db.tables import Device, Job, Measurement, Round, StageRun, Task, Worker

FRESH_SEC: Final = 30.0  # a worker not seen for longer than this does not count as live
PRIVATE = ("job_id", "job_name", "task_index", "task_name")
WAITING = (JobState.QUEUED, JobState.IMPORTING, JobState.TUNING, JobState.FINISHING)
#: A worker not seen for longer than this is dead: workers report far more often.
SILENT_SEC = 60.0
#: Stage runs that began more than this before a time window are not searched for in it.
LONGEST_SEC = 6 * 3600.0


class Workers(Repository):
    def record_seen(self, worker_id: str, host_id: str, info: WorkerInfo, busy_with: str = "") -> None:
        """Record that a worker is alive now: insert or update its row."""
        values = {"host_id": host_id, "info": info, "busy_with": busy_with, "last_seen": now()}
        insert = self.insert(Worker).values(id=worker_id, started_at=now(), changed_at=now(), **values)
        is_fresh = Worker.last_seen > seconds_from_now(-FRESH_SEC)
        is_same = and_(is_fresh, Worker.info == insert.excluded.info)
        values["changed_at"] = case((is_same, Worker.changed_at), else_=now())
        self.session.execute(insert.on_conflict_do_update(index_elements=["id"], set_=values))

    def list_tuning(self, toolchain: str = "") -> list[Worker]:
        """Return live workers that run rounds, by start, without those that rest, and if a
        toolchain is given, only those that have it."""
        rows = [row for row in self.list(FRESH_SEC) if not row.info.missing_tools.get(toolchain)]
        infos = [(row, row.info) for row in rows]
        return [row for row, i in infos if i.can_tune and not i.stopped and not i.missing_resource]

    def builder(self, toolchain: str) -> str | None:
        """Return the builder of a toolchain's newest live worker of rounds, or None."""
        infos = [row.info for row in self.list_tuning(toolchain)]
        named = [info.accelerator_builders.get(toolchain, info.builder) for info in infos if info.builder]
        return named[-1] if named else None

    def builders(self, tuning: bool = True) -> set[str]:
        """Return live workers' builders or TVM versions, by default of tuning ones."""
        infos = [row.info for row in self.list(FRESH_SEC) if not row.info.stopped]
        chosen = [info.builders for info in infos if info.can_tune or not tuning]
        return set().union(*chosen)

    def hosts(self, ids: Collection[str]) -> set[str]:
        return set(self.session.scalars(select(Worker.host_id).where(Worker.id.in_(ids))))

    def delete_unseen(self, days: float, limit: int) -> int:
        """Delete up to `limit` workers not seen for `days` days; return how many."""
        worker_ids = select(Worker.id).where(Worker.last_seen < seconds_from_now(-days * 86400)).limit(limit)
        return self.execute_and_count(delete(Worker).where(Worker.id.in_(worker_ids)))

    def list(self, fresh_sec: float | None = None) -> Sequence[Worker]:
        """Return workers by start time, only those seen within `fresh_sec` if given."""
        query = select(Worker).order_by(Worker.started_at, Worker.id)
        if fresh_sec is not None:
            query = query.where(Worker.last_seen > now() - fresh_sec)
        return self.session.scalars(query).all()


class Activity(Repository):
    def rounds(self, owner: str | None, since_sec: float, limit: int) -> list[RoundOnWorker]:
        """Return the newest `limit` rounds of the last `since_sec`, oldest first."""
        since = self.session.scalar(select(seconds_from_now(-since_sec)))  # with a number the index is used
        has_run = Round.started_at.is_not(None), Round.worker.is_not(None)
        recent = or_(Round.finished_at.is_(None), Round.finished_at > since)
        newest = select(Round.id).where(*has_run, recent).order_by(Round.id.desc()).limit(limit).subquery()
        trial = (Measurement.round_id == Round.id) & (Measurement.kind == MeasurementKind.TRIAL)
        failures = case((has_failed(), 1), else_=0)
        query = (
            select(
                *(Round.id.label("round_id"), Round.state, Round.worker, Round.started_at, Round.finished_at),
                *(is_owned_by(owner).label("mine"), Job.id.label("job_id"), Job.name.label("job_name")),
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
        return [RoundOnWorker.model_validate(hide_foreign_names(row)) for row in self.session.execute(query)]

    def count_waiting(self) -> dict[str, int]:
        """Return how many rounds wait for a worker, and how many jobs per active state."""
        waiting = select(func.count()).select_from(Round).where(Round.state == RoundState.QUEUED)
        jobs = select(Job.state, func.count()).where(Job.state.in_(WAITING)).group_by(Job.state)
        return {"rounds": self.session.scalar(waiting) or 0} | dict(self.session.execute(jobs).all())


def hide_foreign_names(row: Row[*tuple[Any, ...]]) -> dict[str, object]:
    """Return a row as a dictionary, without the ids and names of another owner's job. They
    are None unless the row's column `mine` is true."""
    fields = dict(row._mapping)
    return fields if fields.pop("mine") else fields | dict.fromkeys(PRIVATE)


class StageRuns(Repository):
    def begin(self, job_id: str, kind: StageKind, worker: str) -> int:
        statement = insert(StageRun).values(job_id=job_id, kind=kind, worker=worker)
        return self.session.scalars(statement.returning(StageRun.id)).one()

    def end(self, run_id: int) -> None:
        """Record that a stage ended now, with or without success."""
        self.execute_and_count(update(StageRun).where(StageRun.id == run_id).values(finished_at=now()))

    def seconds(self, job_id: str, kind: StageKind) -> float:
        """Return the total seconds of all ended attempts of a job's stage."""
        total_sec = func.coalesce(func.sum(StageRun.finished_at - StageRun.started_at), 0.0)
        query = select(total_sec).where(StageRun.job_id == job_id, StageRun.kind == kind)
        return float(self.session.scalar(query) or 0.0)

    def recent(self, owner: str | None, since_sec: float, limit: int) -> list[StageOnWorker]:
        """Return the newest `limit` stage runs within the last `since_sec`, oldest first.

        A run that a dead worker did not end counts as ended when that worker was last seen.
        """
        is_silent = Worker.last_seen < seconds_from_now(-SILENT_SEC)
        lost_at = case((Worker.id.is_(None), StageRun.started_at), (is_silent, Worker.last_seen))
        ended_at = func.coalesce(StageRun.finished_at, lost_at)
        query = (
            select(
                *(
                    StageRun.id,
                    StageRun.kind,
                    StageRun.worker,
                    StageRun.started_at,
                    ended_at.label("finished_at"),
                ),
                *(is_owned_by(owner).label("mine"), Job.id.label("job_id"), Job.name.label("job_name")),
            )
            .join(Job, Job.id == StageRun.job_id)
            .join(Worker, Worker.id == StageRun.worker, isouter=True)
            .where(Job.deleted_at.is_(None), StageRun.started_at > seconds_from_now(-since_sec - LONGEST_SEC))
            .where(or_(ended_at.is_(None), ended_at > seconds_from_now(-since_sec)))
            .order_by(StageRun.id.desc())
            .limit(limit)
        )
        rows = reversed(self.session.execute(query).all())
        return [StageOnWorker.model_validate(hide_foreign_names(row)) for row in rows]
