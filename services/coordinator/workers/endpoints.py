"""The route of workers."""

from fastapi import APIRouter

from services.coordinator.web.paging import ListOut
from services.coordinator.web.parts import PartsDep
from services.coordinator.workers import service
from services.coordinator.workers.schemas import WorkerOut

router = APIRouter(prefix="/workers", tags=["fleet"])


@router.get("")
def list_workers(parts: PartsDep) -> ListOut[WorkerOut]:
    """List the worker slots seen within a day."""
    return service.list_workers(parts)
