"""Whether any worker can run the cost model that a job asks for."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from db.repositories.workers import Workers
from mallorn.core.errors import MissingPackage
from mallorn.core.installing import install_line
from mallorn.core.libraries import extras_of, libraries_of
from mallorn.core.values.fleet import WorkerInfo
from services.coordinator.fleet.states import SILENT_SEC


def check_cost_model(session: Session, name: str) -> None:
    """Raise MissingPackage where workers are there and none of them can run a cost model.

    Where none is there the job waits; a worker of an older version, which says nothing of itself, may run it.
    """
    live = [worker for worker in Workers(session).list(SILENT_SEC) if not worker.info.stopped]
    tuning = [worker for worker in live if worker.info.tunes]
    if missing := missing_libraries(name, [worker.info for worker in tuning]):
        hosts = ", ".join(sorted({worker.id.rsplit("-", 2)[0] for worker in tuning}))
        raise MissingPackage(
            f"the cost model {name} needs {' and '.join(missing)}, which no worker has; they run on {hosts}",
            hint=f"{install_line(extras_of(missing))}   (where a worker runs; then start it again)",
        )


def missing_libraries(name: str, workers: Sequence[WorkerInfo]) -> list[str]:
    """What keeps all of these workers from running a cost model; nothing where one of them can or may."""
    known = [worker.cost_models for worker in workers if worker.cost_models is not None]
    if not known or len(known) < len(workers) or any(name in names for names in known):
        return []
    there = {library for names in known for each in names for library in libraries_of(each)}
    needed = libraries_of(name)
    return sorted(needed - there or needed)
