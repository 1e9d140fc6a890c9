"""A device's description of itself, and its class, within which times are comparable."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from mallorn.core.errors import NoDevice
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.storable_json import check_storable
from mallorn.core.values.base import Value
from mallorn.core.values.fleet import DeviceInfo

LONGEST: Final = 16_384  # characters of a device's whole description
MOST_THREADS: Final = 4096
Word = Annotated[str, Field(min_length=1, max_length=200, strict=True)]


class DeviceClass(NamedTuple):
    """The properties that two devices must share for their times to be comparable."""

    host_class: str
    tvm_version: str
    threads: int

    @property
    def json_text(self) -> str:
        """JSON text by which a client requests a device of this class from the tracker."""
        return json.dumps(self)


def class_text_of_entry(info: Any) -> str:
    """Return the text of the class in a device's tracker entry; `unknown` if unreadable."""
    try:
        identity = info["mallorn"]
        return DeviceClass(identity["host_class"], identity["tvm_version"], identity["threads"]).json_text
    except (KeyError, TypeError):
        return "unknown"


def no_device_error(device_class: DeviceClass | None) -> NoDevice:
    """Return the error for "no device of this class answers"; None stands for any class."""
    if device_class is None:
        return NoDevice()
    kind = f"{device_class.host_class}, TVM {device_class.tvm_version}, threads: {device_class.threads}"
    hint = "mallorn devices   (bring one back, or tune the model anew)"
    return NoDevice(f"no device of the class that measured this job's times answers ({kind})", hint=hint)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A device: its name, its host, the properties of its class, and further facts."""

    name: str
    host_id: str
    host_class: str
    threads: int  # TVM_NUM_THREADS in the process that ran the candidate
    tvm_version: str
    info: DeviceInfo = field(default_factory=DeviceInfo)

    @property
    def device_class(self) -> DeviceClass:
        return DeviceClass(self.host_class, self.tvm_version, self.threads)


class _RequiredFacts(Value):
    name: Word
    host_id: Word
    host_class: Word
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS, strict=True)]
    tvm_version: Word


def endpoint_of(identity: Mapping[str, object]) -> Endpoint:
    """Validate a device's description and return it as an Endpoint. Raises ValueError if it
    is incomplete, too long or out of range."""
    check_storable(identity)
    if len(json.dumps(identity)) > LONGEST:
        raise ValueError("it says too much")
    facts = _RequiredFacts.model_validate(identity)
    if facts.host_id in VIRTUAL_DEVICES:
        raise ValueError("the name of the host is that of a virtual device")
    return Endpoint(**dict(facts), info=DeviceInfo.model_validate(identity))
