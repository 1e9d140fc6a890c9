"""The route of the dataset's numbers."""

from fastapi import APIRouter

from services.coordinator.dataset import service
from services.coordinator.dataset.schemas import StatisticsOut
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/dataset", tags=["dataset"])


@router.get("/stats")
def dataset_stats(parts: PartsDep, owner: OwnerDep) -> StatisticsOut:
    """Count what the owner's jobs measured: by target, operator, model and outcome, and day by day."""
    return service.dataset_stats(parts, owner)
