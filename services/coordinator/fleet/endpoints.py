"""The route of the fleet's activity."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from services.coordinator.fleet import service
from services.coordinator.fleet.schemas import ActivityOut
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/fleet", tags=["fleet"])
DAY_MINUTES: Final = 24 * 60


@router.get("/activity")
def fleet_activity(
    parts: PartsDep,
    owner: OwnerDep,
    minutes: Annotated[
        float, Query(gt=0, le=DAY_MINUTES, allow_inf_nan=False, description="How far back.")
    ] = 60,
) -> ActivityOut:
    """Show what ran lately, on which worker and device, and what waits."""
    return service.activity(parts, owner, minutes)
