"""A device as the API shows it."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from db.tables import Device

ONLINE_SEC = 60.0


class DeviceOut(BaseModel):
    """One measuring endpoint."""

    id: int
    name: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    host_id: Annotated[str, Field(description="Equal for all that share a machine.")]
    host_class: Annotated[str, Field(description="Equal for machines whose times compare.")]
    threads: int
    tvm_version: str
    info: dict[str, Any]
    busy: Annotated[bool, Field(description="A session holds it right now.")]
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
            busy=bool(device.info.get("busy")),
            last_seen=device.last_seen,
            seen_sec=round(seen_sec, 3),
            online=seen_sec < ONLINE_SEC,
        )
