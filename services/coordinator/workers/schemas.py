"""A worker as the API shows it."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, Field

from db.tables import Worker
from mallorn.core.values.fleet import WorkerInfo

SILENT_SEC = 30.0


class WorkerState(StrEnum):
    """What a worker does. One that stopped has said so; one that is silent may have died."""

    BUSY = "busy"
    IDLE = "idle"
    SILENT = "silent"
    STOPPED = "stopped"


class WorkerOut(BaseModel):
    """One worker slot."""

    id: str
    host_id: str
    info: WorkerInfo
    busy_with: str
    state: WorkerState
    started_at: float
    last_seen: float
    uptime_sec: float
    seen_sec: Annotated[float, Field(description="Seconds since it was last seen.")]

    @classmethod
    def of(cls, worker: Worker, now_sec: float) -> Self:
        seen_sec = max(0.0, now_sec - worker.last_seen)
        return cls(
            id=worker.id,
            state=_state(worker, seen_sec),
            host_id=worker.host_id,
            info=worker.info,
            busy_with=worker.busy_with,
            started_at=worker.started_at,
            last_seen=worker.last_seen,
            uptime_sec=round(max(0.0, worker.last_seen - worker.started_at), 3),
            seen_sec=round(seen_sec, 3),
        )


def _state(worker: Worker, seen_sec: float) -> WorkerState:
    if worker.info.stopped:
        return WorkerState.STOPPED
    if seen_sec > SILENT_SEC:
        return WorkerState.SILENT
    return WorkerState.BUSY if worker.busy_with else WorkerState.IDLE
