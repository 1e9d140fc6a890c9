"""Routes of devices and workers."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from mallorn.core.scopes import Scope
from mallorn.core.values.fleet import DeviceStatus, FleetActivity, WithdrawIn, Withdrawn, WorkerStatus
from services.coordinator.fleet import service
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.callers import needs
from services.coordinator.web.paging import ListOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(tags=["fleet"])
DAY_MINUTES: Final = 24 * 60
SEES_FLEET: Final = needs(Scope.READ, Scope.DEVICE)


@router.get("/devices", openapi_extra=SEES_FLEET)
def list_devices(parts: PartsDep) -> ListOut[DeviceStatus]:
    """List all devices that were ever seen, with when that was."""
    return service.list_devices(parts)


@router.post("/devices/{name}/withdraw", openapi_extra=needs(Scope.ADMIN))
def withdraw_device(parts: PartsDep, name: str, wanted: WithdrawIn) -> Withdrawn:
    """Take back what a device measured, and the schedules and the cost models that rest on it."""
    return service.withdraw(parts, name, wanted)


@router.get("/workers", openapi_extra=SEES_FLEET)
def list_workers(parts: PartsDep) -> ListOut[WorkerStatus]:
    """List the worker slots seen within a day."""
    return service.list_workers(parts)


@router.get("/fleet/activity", openapi_extra=SEES_FLEET)
def fleet_activity(
    parts: PartsDep,
    owner: OwnerDep,
    minutes: Annotated[
        float, Query(gt=0, le=DAY_MINUTES, allow_inf_nan=False, description="How far back.")
    ] = 60,
) -> FleetActivity:
    """Show what ran lately, on which worker and device, and what waits."""
    return service.activity(parts, owner, minutes)
