"""Finds workers."""

from typing import Final

from db.repositories.workers import Workers
from db.session import read_clock
from services.coordinator.web.paging import ListOut
from services.coordinator.web.parts import Parts
from services.coordinator.workers.schemas import WorkerOut, WorkerState

# A worker's id names one process: those of a day ago will not come back.
KEEP_SEC: Final = 24 * 3600.0


def list_workers(parts: Parts) -> ListOut[WorkerOut]:
    with parts.database.session() as session:
        now_sec = read_clock(session)
        found = [WorkerOut.of(worker, now_sec) for worker in Workers(session).list(KEEP_SEC)]
    return ListOut(items=sorted(found, key=lambda worker: worker.state is WorkerState.STOPPED))
