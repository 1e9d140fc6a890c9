"""What a device tells of itself: to the tracker, and to whoever holds a session."""

from typing import NotRequired, TypedDict


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
