"""Workers: who works, and who was seen lately."""

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import delete, select

from db.database_clock import now
from db.repositories.base import Repository, until
from db.tables import Worker
from mallorn.core.values.fleet import WorkerInfo

FRESH_SEC: Final = 30.0  # a worker that was silent for longer is not counted on


class Workers(Repository):
    def seen(self, worker_id: str, host_id: str, info: WorkerInfo, busy_with: str = "") -> None:
        """It is alive now: write or refresh its row."""
        fresh = {"host_id": host_id, "info": info, "busy_with": busy_with, "last_seen": now()}
        insert = self.insert(Worker).values(id=worker_id, started_at=now(), **fresh)
        self.session.execute(insert.on_conflict_do_update(index_elements=["id"], set_=fresh))

    def able(self) -> set[str]:
        """Those that run rounds: seen lately, not leaving, not resting, and no mere importers."""
        found = [worker for worker in self.list(FRESH_SEC) if worker.info.tunes and not worker.info.stopped]
        return {worker.id for worker in found if not worker.info.resting}

    def builder(self) -> str | None:
        """Return the builder of the newest worker that runs rounds now; None where none tells its own."""
        able = self.able()
        named = [row.info.builder for row in self.list(FRESH_SEC) if row.id in able and row.info.builder]
        return named[-1] if named else None

    def builders(self, tuning: bool = True) -> set[str]:
        """Return the builders of all live workers, or of those that run rounds; an old one names its TVM."""
        live = [row.info for row in self.list(FRESH_SEC) if not row.info.stopped]
        return {info.builder or info.tvm_version for info in live if info.tunes or not tuning}

    def hosts(self, ids: Collection[str]) -> set[str]:
        """The machines of these workers."""
        return set(self.session.scalars(select(Worker.host_id).where(Worker.id.in_(ids))))

    def forget(self, days: float, limit: int) -> int:
        """Delete those that were silent for so long, as each restart leaves one; how many."""
        old = select(Worker.id).where(Worker.last_seen < until(-days * 86400)).limit(limit)
        return self.changed(delete(Worker).where(Worker.id.in_(old)))

    def list(self, fresh_sec: float | None = None) -> Sequence[Worker]:
        """By start; `fresh_sec` leaves out those that were silent for longer."""
        query = select(Worker).order_by(Worker.started_at, Worker.id)
        if fresh_sec is not None:
            query = query.where(Worker.last_seen > now() - fresh_sec)
        return self.session.scalars(query).all()
