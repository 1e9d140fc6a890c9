"""What a device or a worker does right now, from what it said last and when that was."""

from typing import Final

from db.tables import Device, Worker
from mallorn.core.values.fleet import DeviceState, WorkerState

ONLINE_SEC: Final = 60.0
SILENT_SEC: Final = 30.0


def is_online(device: Device, seen_sec: float) -> bool:
    """Whether a device can be counted on."""
    return seen_sec < ONLINE_SEC and not device.info.stopped


def state_of_device(device: Device, seen_sec: float) -> DeviceState:
    """`seen_sec`: how long ago it was last seen."""
    if device.info.stopped:
        return DeviceState.STOPPED
    if seen_sec >= ONLINE_SEC:
        return DeviceState.SILENT
    return DeviceState.MEASURING if device.info.busy else DeviceState.IDLE


def state_of_worker(worker: Worker, seen_sec: float) -> WorkerState:
    """`seen_sec`: how long ago it was last seen."""
    if worker.info.stopped:
        return WorkerState.STOPPED
    if seen_sec > SILENT_SEC:
        return WorkerState.SILENT
    return WorkerState.BUSY if worker.busy_with else WorkerState.IDLE
