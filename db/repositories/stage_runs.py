"""What workers did besides rounds: begun, ended, and read as spans of time."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import case, func, insert, or_, select, update

from db.clock import now
from db.repositories.base import Repository, owned, until
from db.tables import Job, StageRun, Worker
from mallorn.core.states import StageKind

#: A worker says that it lives far more often than this.
SILENT_SEC = 60.0
#: Nothing that began earlier than this before a window is looked for in it.
LONGEST_SEC = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class StageStint:
    """An import, a training or a finish; `finished_at` None: it goes on."""

    id: int
    job_id: str
    job_name: str
    mine: bool  # the owner's who asked
    kind: str
    worker: str
    started_at: float
    finished_at: float | None


class StageRuns(Repository):
    """Stretches of workers' time."""

    def begin(self, job_id: str, kind: StageKind, worker: str) -> int:
        """A worker begins now; the id to end it with."""
        begun = insert(StageRun).values(job_id=job_id, kind=kind, worker=worker)
        return self.session.scalars(begun.returning(StageRun.id)).one()

    def end(self, run_id: int) -> None:
        """It ended now, however."""
        self.changed(update(StageRun).where(StageRun.id == run_id).values(finished_at=now()))

    def stints(self, owner: str | None, since_sec: float, limit: int) -> Sequence[StageStint]:
        """The newest `limit` that ran within the last `since_sec`, oldest first.

        What nobody ended did so when its worker was last seen, if that is silent now.
        """
        silent = Worker.last_seen < until(-SILENT_SEC)
        lost_at = case((Worker.id.is_(None), StageRun.started_at), (silent, Worker.last_seen))
        ended = func.coalesce(StageRun.finished_at, lost_at)
        query = (
            select(
                *(StageRun.id, Job.id, Job.name, owned(owner), StageRun.kind, StageRun.worker),
                *(StageRun.started_at, ended),
            )
            .join(Job, Job.id == StageRun.job_id)
            .join(Worker, Worker.id == StageRun.worker, isouter=True)
            .where(Job.deleted_at.is_(None), StageRun.started_at > until(-since_sec - LONGEST_SEC))
            .where(or_(ended.is_(None), ended > until(-since_sec)))
            .order_by(StageRun.id.desc())
            .limit(limit)
        )
        return [StageStint(*row) for row in reversed(self.session.execute(query).all())]
