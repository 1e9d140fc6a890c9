"""Workers: their descriptions, and when they were last seen."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import delete, select

from db.database_clock import now
from db.repositories.base import Repository, until
from db.tables import Worker
from mallorn.core.values.fleet import WorkerInfo

FRESH_SEC: Final = 30.0  # a worker not seen for longer than this does not count as live


class Workers(Repository):
    def seen(self, worker_id: str, host_id: str, info: WorkerInfo, busy_with: str = "") -> None:
        """Record that a worker is alive now: insert or update its row."""
        values = {"host_id": host_id, "info": info, "busy_with": busy_with, "last_seen": now()}
        insert = self.insert(Worker).values(id=worker_id, started_at=now(), **values)
        self.session.execute(insert.on_conflict_do_update(index_elements=["id"], set_=values))

    def able(self) -> set[str]:
        """Return the live workers that run rounds: not stopped, not resting, not only importing."""
        tuning = [worker for worker in self.list(FRESH_SEC) if worker.info.tunes and not worker.info.stopped]
        return {worker.id for worker in tuning if not worker.info.resting}

    def builder(self) -> str | None:
        """Return the builder of the newest live worker that runs rounds; None if none reports any."""
        able = self.able()
        builders = [row.info.builder for row in self.list(FRESH_SEC) if row.id in able and row.info.builder]
        return builders[-1] if builders else None

    def builders(self, tuning: bool = True) -> set[str]:
        """Return the builders (or the TVM versions) of live workers that run rounds, or of all of them."""
        infos = [row.info for row in self.list(FRESH_SEC) if not row.info.stopped]
        return {info.builder or info.tvm_version for info in infos if info.tunes or not tuning}

    def hosts(self, ids: Collection[str]) -> set[str]:
        """Return the host ids of these workers."""
        return set(self.session.scalars(select(Worker.host_id).where(Worker.id.in_(ids))))

    def forget(self, days: float, limit: int) -> int:
        """Delete up to `limit` workers not seen for `days` days, which restarts left; return how many."""
        worker_ids = select(Worker.id).where(Worker.last_seen < until(-days * 86400)).limit(limit)
        return self.changed(delete(Worker).where(Worker.id.in_(worker_ids)))

    def list(self, fresh_sec: float | None = None) -> Sequence[Worker]:
        """Return workers by start time, only those seen within `fresh_sec` if given."""
        query = select(Worker).order_by(Worker.started_at, Worker.id)
        if fresh_sec is not None:
            query = query.where(Worker.last_seen > now() - fresh_sec)
        return self.session.scalars(query).all()
