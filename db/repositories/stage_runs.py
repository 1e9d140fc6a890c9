"""What workers did besides rounds: begun, ended, and read as spans of time."""

from sqlalchemy import case, func, insert, or_, select, update

from db.clock import now
from db.repositories.activity import without_names
from db.repositories.base import Repository, owned, until
from db.tables import Job, StageRun, Worker
from mallorn.core.states import StageKind
from mallorn.core.values.fleet import StageOnWorker

#: A worker says that it lives far more often than this.
SILENT_SEC = 60.0
#: Nothing that began earlier than this before a window is looked for in it.
LONGEST_SEC = 6 * 3600.0


class StageRuns(Repository):
    """Stretches of workers' time."""

    def begin(self, job_id: str, kind: StageKind, worker: str) -> int:
        """A worker begins now; the id to end it with."""
        begun = insert(StageRun).values(job_id=job_id, kind=kind, worker=worker)
        return self.session.scalars(begun.returning(StageRun.id)).one()

    def end(self, run_id: int) -> None:
        """It ended now, however."""
        self.changed(update(StageRun).where(StageRun.id == run_id).values(finished_at=now()))

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
