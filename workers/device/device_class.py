"""A device's description of itself, and its class, within which times are comparable."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, TypeAdapter

from mallorn.core.errors import NoDevice
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.storable_json import check_storable
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

    name: Word
    host_id: Word
    host_class: Word
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS, strict=True)]  # TVM_NUM_THREADS of its programs
    tvm_version: Word
    info: DeviceInfo = field(default_factory=DeviceInfo)

    @property
    def device_class(self) -> DeviceClass:
        return DeviceClass(self.host_class, self.tvm_version, self.threads)


_ENDPOINT: Final = TypeAdapter(Endpoint)


def endpoint_of(identity: Mapping[str, object]) -> Endpoint:
    """Validate a device's description and return it as an Endpoint. Raises ValueError if it
    is incomplete, too long or out of range."""
    check_storable(identity)
    if len(json.dumps(identity)) > LONGEST:
        raise ValueError("it says too much")
    endpoint = _ENDPOINT.validate_python({**identity, "info": identity})
    if endpoint.host_id in VIRTUAL_DEVICES:
        raise ValueError("the name of the host is that of a virtual device")
    return endpoint
