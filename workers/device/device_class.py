"""The device that measured, as it described itself."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NotRequired, TypedDict

from pydantic import Field

from mallorn.core.errors import NoDevice
from mallorn.core.stand_in_measurers import STAND_INS
from mallorn.core.storable_json import check_storable
from mallorn.core.values.base import Value
from mallorn.core.values.fleet import DeviceInfo

LONGEST: Final = 16_384  # characters of all that a device says of itself
MOST_THREADS: Final = 4096
Word = Annotated[str, Field(min_length=1, max_length=200, strict=True)]


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """What must be equal of two devices for their times to compare."""

    host_class: str
    tvm_version: str
    threads: int

    @property
    def text(self) -> str:
        """As a client names it to the tracker."""
        return json.dumps([self.host_class, self.tvm_version, self.threads])


def described_class(info: Any) -> str:
    """The text of the class of a device that says this of itself; of none where it cannot be read."""
    try:
        told = info["mallorn"]
        return DeviceClass(told["host_class"], told["tvm_version"], told["threads"]).text
    except (KeyError, TypeError):
        return "unknown"


def none_like(like: DeviceClass | None) -> NoDevice:
    """The error where no device of a class answers; None: of any."""
    if like is None:
        return NoDevice()
    kind = f"{like.host_class}, TVM {like.tvm_version}, threads: {like.threads}"
    hint = "mallorn devices   (bring one back, or tune the model anew)"
    return NoDevice(f"no device answers that is as those that took this job's times ({kind})", hint=hint)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A device's name, what must be equal for two times to compare, and what else it tells."""

    name: str
    host_id: str
    host_class: str
    threads: int  # TVM_NUM_THREADS in the process that ran the candidate
    tvm_version: str
    info: DeviceInfo = field(default_factory=DeviceInfo)

    @property
    def device_class(self) -> DeviceClass:
        return DeviceClass(self.host_class, self.tvm_version, self.threads)


class HostFacts(TypedDict):
    """The host: `host_id` tells machines apart, `host_class` is equal where times compare."""

    host_id: str
    host_class: str
    cpu_model: str
    cores: int
    governor: str
    machine: str
    hostname: str


class RuntimeFacts(TypedDict):
    """What TVM's runtime is there."""

    tvm_version: str
    threads: int
    accelerator: NotRequired[str]  # the name of a GPU; empty where there is none
    gpu_index: NotRequired[int]  # among the visible GPUs of the host
    gpu_uuid: NotRequired[str]
    gpu_memory_bytes: NotRequired[int]
    gpu_driver: NotRequired[str]
    gpu_power_limit: NotRequired[str]  # as `+300W`; empty where it is the GPU's own


class Identity(HostFacts, RuntimeFacts):
    name: str
    target: str
    address: str
    is_local: bool
    sandbox: str  # how far the walls around its sessions close
    locks: str  # `lock_identity` of its process


class _Told(Value):
    """What every device says, within the bounds of what can be true."""

    name: Word
    host_id: Word
    host_class: Word
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS, strict=True)]
    tvm_version: Word


def endpoint_of(identity: Mapping[str, object]) -> Endpoint:
    """What a device said of itself, as an Endpoint. Raises ValueError for what no device of ours says."""
    check_storable(identity)
    if len(json.dumps(identity)) > LONGEST:
        raise ValueError("it says too much")
    told = _Told.model_validate(identity)
    if told.host_id in STAND_INS:
        raise ValueError("it says that it is none")
    return Endpoint(**dict(told), info=DeviceInfo.model_validate(identity))
