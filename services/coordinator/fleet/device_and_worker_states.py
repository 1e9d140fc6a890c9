"""States of devices and workers, and the targets that `local` and `cuda` stand for."""

from typing import Final

from sqlalchemy.orm import Session

from db.repositories.devices import Devices
from db.repositories.targets import Targets
from db.session import read_clock
from db.tables import Device, Worker
from mallorn.core.errors import Conflict, InvalidTarget, NoDevice
from mallorn.core.host_id import host_id
from mallorn.core.targets import CUDA, Target
from mallorn.core.values.fleet import DeviceState, WorkerState

ONLINE_SEC: Final = 60.0
SILENT_SEC: Final = 30.0


def is_online(device: Device, seen_sec: float) -> bool:
    """Return whether a device was seen recently and has not stopped."""
    return seen_sec < ONLINE_SEC and not device.info.stopped


def state_of_device(device: Device, seen_sec: float) -> DeviceState:
    """Return the state of a device that was last seen `seen_sec` seconds ago."""
    if device.info.stopped:
        return DeviceState.STOPPED
    if seen_sec >= ONLINE_SEC:
        return DeviceState.SILENT
    return DeviceState.MEASURING if device.info.busy else DeviceState.IDLE


def state_of_worker(worker: Worker, seen_sec: float) -> WorkerState:
    """Return the state of a worker that was last seen `seen_sec` seconds ago."""
    if worker.info.stopped:
        return WorkerState.STOPPED
    if seen_sec > SILENT_SEC:
        return WorkerState.SILENT
    return WorkerState.BUSY if worker.busy_with and not worker.info.resting else WorkerState.IDLE


def local_target(session: Session) -> Target:
    """Return the target of a device that is online on the coordinator's own host.

    The host's detected target is preferred to others it can execute, a CPU to accelerators.

    Raises Conflict if no device of this host is known, NoDevice if none of them is online.
    """
    local = [device for device in Devices(session).list() if device.host_id == host_id()]
    if not local:
        raise Conflict("no known device on this host defines `local`", hint="mallorn device")
    now_sec = read_clock(session)
    online = [device for device in local if is_online(device, now_sec - device.last_seen)]
    if not online:
        last = max(local, key=lambda device: device.last_seen)
        raise NoDevice(
            f"`local` is the device {last.name}, which was last seen {now_sec - last.last_seen:.0f} s ago",
            hint="mallorn device   (workers report devices: mallorn workers)",
        )
    pairs = [(device, Target(Targets(session).get(device.target_id).text)) for device in online]
    return max(pairs, key=lambda each: (each[0].info.is_local, each[1].is_cpu, each[0].last_seen))[1]


def gpu_target(session: Session) -> Target:
    """Return the CUDA target of the devices that are online.

    Raises NoDevice if no such device has a GPU, InvalidTarget if their GPUs differ.
    """
    now_sec = read_clock(session)
    online = [device for device in Devices(session).list() if is_online(device, now_sec - device.last_seen)]
    targets = {Target(Targets(session).get(device.target_id).text) for device in online}
    gpus = sorted(target.text for target in targets if target.kind == CUDA)
    if not gpus:
        raise NoDevice(
            "no device with a CUDA GPU is online", hint="mallorn device --target cuda   (where the GPU is)"
        )
    if len(gpus) > 1:
        raise InvalidTarget(f"`cuda` could be {', '.join(gpus)}", hint=f"--target '{gpus[0]}'")
    return Target(gpus[0])
