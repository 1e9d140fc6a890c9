"""A worker as the API shows it."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from db.tables import Worker


class WorkerOut(BaseModel):
    """One worker slot."""

    id: str
    host_id: str
    info: dict[str, Any]
    busy_with: str
    started_at: float
    last_seen: float
    uptime_sec: float
    seen_sec: Annotated[float, Field(description="Seconds since it was last seen.")]

    @classmethod
    def of(cls, worker: Worker, now_sec: float) -> Self:
        return cls(
            id=worker.id,
            host_id=worker.host_id,
            info=worker.info,
            busy_with=worker.busy_with,
            started_at=worker.started_at,
            last_seen=worker.last_seen,
            uptime_sec=round(max(0.0, worker.last_seen - worker.started_at), 3),
            seen_sec=round(max(0.0, now_sec - worker.last_seen), 3),
        )
