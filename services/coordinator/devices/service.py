"""Finds devices, and what `local` means."""

from sqlalchemy.orm import Session

from db.repositories.devices import Devices
from db.repositories.targets import Targets
from db.session import read_clock
from mallorn.core.errors import Conflict
from mallorn.core.hosts import host_id
from mallorn.core.targets import Target
from services.coordinator.devices.schemas import DeviceOut
from services.coordinator.paging import ListOut
from services.coordinator.parts import Parts


def list_devices(parts: Parts) -> ListOut[DeviceOut]:
    with parts.database.session() as session:
        now_sec = read_clock(session)
        targets = Targets(session)
        found = Devices(session).list()
        return ListOut(
            items=[DeviceOut.of(device, targets.get(device.target_id).text, now_sec) for device in found]
        )


def local_target(session: Session) -> Target:
    """The target that a device on the coordinator's own host announced last; CPUs before accelerators.

    Raises Conflict while no device of this host is known.
    """
    here = [device for device in Devices(session).list() if device.host_id == host_id()]
    known = [(device.last_seen, Target(Targets(session).get(device.target_id).text)) for device in here]
    if not known:
        raise Conflict("no device on this host has said yet what `local` is", hint="mallorn device")
    return max(known, key=lambda entry: (entry[1].is_cpu, entry[0]))[1]
