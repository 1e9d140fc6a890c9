"""The device that measured, as it described itself."""

from dataclasses import dataclass, field

from mallorn.core.values.fleet import DeviceInfo
from workers.device.identity import Identity


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A device's name, what must be equal for two times to compare, and what else it tells."""

    name: str
    host_id: str
    host_class: str
    threads: int  # TVM_NUM_THREADS in the process that ran the candidate
    tvm_version: str
    info: DeviceInfo = field(default_factory=DeviceInfo)


def endpoint_of(identity: Identity) -> Endpoint:
    """What a device said of itself, as an Endpoint."""
    return Endpoint(
        name=str(identity["name"]),
        host_id=str(identity["host_id"]),
        host_class=str(identity["host_class"]),
        threads=int(identity["threads"]),
        tvm_version=str(identity["tvm_version"]),
        info=DeviceInfo.model_validate(identity),
    )
