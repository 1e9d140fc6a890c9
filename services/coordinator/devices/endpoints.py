"""The route of devices."""

from fastapi import APIRouter

from services.coordinator.devices import service
from services.coordinator.devices.schemas import DeviceOut
from services.coordinator.web.paging import ListOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/devices", tags=["fleet"])


@router.get("")
def list_devices(parts: PartsDep) -> ListOut[DeviceOut]:
    """List all devices that were ever seen, with when that was."""
    return service.list_devices(parts)
