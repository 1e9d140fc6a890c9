"""A device as the API shows it."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, Field

from db.tables import Device
from mallorn.core.values.fleet import DeviceInfo

ONLINE_SEC = 60.0


class DeviceState(StrEnum):
    """What a device does. Of one that stopped the tracker says so; one that is silent nobody asks after."""

    MEASURING = "measuring"
    IDLE = "idle"
    SILENT = "silent"
    STOPPED = "stopped"


class DeviceOut(BaseModel):
    """One measuring endpoint."""

    id: int
    name: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    host_id: Annotated[str, Field(description="Equal for all that share a machine.")]
    host_class: Annotated[str, Field(description="Equal for machines whose times compare.")]
    threads: int
    tvm_version: str
    info: DeviceInfo
    busy: Annotated[bool, Field(description="A session holds it right now.")]
    state: DeviceState
    last_seen: float
    seen_sec: Annotated[float, Field(description="Seconds since it was last seen.")]
    online: bool

    @classmethod
    def of(cls, device: Device, target: str, now_sec: float) -> Self:
        seen_sec = max(0.0, now_sec - device.last_seen)
        return cls(
            id=device.id,
            name=device.name,
            target=target,
            host_id=device.host_id,
            host_class=device.host_class,
            threads=device.threads,
            tvm_version=device.tvm_version,
            info=device.info,
            busy=device.info.busy,
            state=_state(device, seen_sec),
            last_seen=device.last_seen,
            seen_sec=round(seen_sec, 3),
            online=is_online(device, seen_sec),
        )


def is_online(device: Device, seen_sec: float) -> bool:
    """Whether a device can be counted on."""
    return seen_sec < ONLINE_SEC and not device.info.stopped


def _state(device: Device, seen_sec: float) -> DeviceState:
    if device.info.stopped:
        return DeviceState.STOPPED
    if seen_sec >= ONLINE_SEC:
        return DeviceState.SILENT
    return DeviceState.MEASURING if device.info.busy else DeviceState.IDLE
