"""The dataset in numbers."""

from fastapi import APIRouter

from db.repositories.statistics import Statistics
from mallorn.core.values.dataset import DatasetStats
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/dataset", tags=["dataset"])


@router.get("/stats")
def dataset_stats(parts: PartsDep, owner: OwnerDep) -> DatasetStats:
    """Count what the owner's jobs measured: by target, operator, model and outcome, and day by day."""
    with parts.patient.session() as session:
        return Statistics(session).of(owner)
