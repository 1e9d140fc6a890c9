"""Devices and workers of the fleet, and their recent activity."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mallorn.core.host_id import share_locks
from mallorn.core.states import RoundState, StageKind
from mallorn.core.values.base import Value
from mallorn.core.values.machine import Machine

PRIVATE: Final = "null: the job of another owner."
LOCKS: Final = (
    "File on which it locks the CPUs of its host. Processes on one host with different files do "
    "not wait for each other. Empty: not reported."
)


class DeviceState(StrEnum):
    """State of a device: `stopped` if the tracker no longer lists it, `silent` if not seen lately."""

    MEASURING = "measuring"
    IDLE = "idle"
    SILENT = "silent"
    STOPPED = "stopped"


class WorkerState(StrEnum):
    """State of a worker: `stopped` if it said so, `silent` if it may be dead."""

    BUSY = "busy"
    IDLE = "idle"
    SILENT = "silent"
    STOPPED = "stopped"


AT_WORK: Final = WorkerState.BUSY, WorkerState.IDLE


class DisturbedInterval(Value):
    """Seconds since the epoch, by the clock of a device's host."""

    since: Annotated[float, Field(description="Start.")]
    until: Annotated[float, Field(description="End.")]


class DeviceInfo(Value):
    """What a device reported about itself and its host."""

    address: str = ""
    hostname: str = ""
    machine: Annotated[str, Field(description="Instruction set, such as `x86_64`.")] = ""
    cpu_model: str = ""
    cores: int | None = None
    governor: Annotated[str, Field(description="CPU frequency governor of the kernel.")] = ""
    accelerator: Annotated[str, Field(description="Name of the GPU; empty on a CPU.")] = ""
    gpu_index: Annotated[
        int | None, Field(description="Index of the GPU among those that the device sees.")
    ] = None
    gpu_uuid: Annotated[str, Field(description="UUID of the GPU, as in `nvidia-smi -L`.")] = ""
    gpu_memory_bytes: Annotated[int | None, Field(description="Size of the GPU's memory.")] = None
    gpu_driver: Annotated[str, Field(description="Driver version of the GPU.")] = ""
    is_local: Annotated[bool, Field(description="Whether its target was detected on its host.")] = False
    sandbox: Annotated[
        str, Field(description="Sandbox of measured code: `full`, `off`, or what is missing.")
    ] = ""
    lock_file: Annotated[str, Field(description=LOCKS)] = ""
    disturbed: Annotated[
        DisturbedInterval | None,
        Field(description="When a program last changed its CPUs, its priority or its host's class."),
    ] = None
    busy: bool = False
    stopped: bool = False

    @property
    def gpu_words(self) -> str:
        """Name, memory and driver of the GPU as text; empty on a CPU."""
        memory = f", {self.gpu_memory_bytes / 2**30:.0f} GiB" if self.gpu_memory_bytes else ""
        driver = f", driver {self.gpu_driver}" if self.gpu_driver else ""
        return f"{self.accelerator}{memory}{driver}"


class DeviceMachine(Value):
    """The measured machine of a device, shared by all devices of its class."""

    machine: Annotated[Machine | None, Field(description="null: it is not measured.")] = None
    reason: Annotated[str, Field(description="Why it is not measured.")] = ""
    probed_at: Annotated[
        float | None, Field(description="When it was last probed, by the database's clock.")
    ] = None
    builder: Annotated[
        str, Field(description="TVM version and digest of the code that measured it; may be empty.")
    ] = ""

    def machine_for_builder(self, builder: str) -> Machine | None:
        """Return the peak rates, as assumed ones if another builder's code took them."""
        if self.machine is None or self.builder == builder:
            return self.machine
        return self.machine.model_copy(update={"measured": False})


class WorkerInfo(Value):
    """What a worker reported about itself."""

    pid: int | None = None
    can_tune: Annotated[bool, Field(description="false: it only imports models.")] = True
    cost_models: Annotated[
        list[str] | None, Field(description="Those whose libraries it has; null: not reported.")
    ] = None
    tvm_version: Annotated[str, Field(description="TVM that it builds with; empty: not reported.")] = ""
    builder: Annotated[
        str, Field(description="TVM, code, compiler and linker that build for CPUs; empty: not reported.")
    ] = ""
    accelerator_builders: Annotated[
        dict[str, str], Field(description="The same by toolchain, with its own compilers and linker.")
    ] = Field(default_factory=dict)
    missing_tools: Annotated[
        dict[str, str], Field(description="By toolchain, what it lacks to build with it; empty: nothing.")
    ] = Field(default_factory=dict)
    width: Annotated[int, Field(description="How many rounds and finishes it runs at a time.")] = 1
    sandbox: Annotated[
        str, Field(description="Sandbox of its child processes: `full`, `off`, or what is missing.")
    ] = ""
    lock_file: Annotated[str, Field(description=LOCKS)] = ""
    stopped: bool = False
    missing_resource: Annotated[
        str, Field(description="What its host lacks, so that it takes no work; empty: nothing.")
    ] = ""
    device_list_error: Annotated[
        str, Field(description="Why it could not list the devices just now; empty: it could.")
    ] = ""

    device_targets: Annotated[
        list[str] | None, Field(description="Keys of targets whose devices it reaches; null: not reported.")
    ] = None

    @property
    def builders(self) -> frozenset[str]:
        """Names of its builders; of a version that reports none, its TVM's."""
        return frozenset({self.builder or self.tvm_version, *self.accelerator_builders.values()} - {""})


class DeviceStatus(Value):
    """A device that measures candidates."""

    id: int
    name: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    host_id: Annotated[str, Field(description="Equal for all devices and workers of a host.")]
    host_class: Annotated[str, Field(description="Equal for hosts whose times compare.")]
    threads: int
    tvm_version: str
    info: DeviceInfo
    machine: Annotated[DeviceMachine | None, Field(description="null: nobody has tried to measure it.")] = (
        None
    )
    busy: Annotated[bool, Field(description="Whether a session holds it right now.")]
    state: DeviceState
    last_seen: float
    silent_sec: Annotated[float, Field(description="Seconds since it was last seen.")]
    online: bool


class WithdrawIn(Value):
    """Which of a device's measurements to withdraw."""

    since: Annotated[
        float | None, Field(description="Earliest time, seconds since the epoch; null: all measurements.")
    ] = None
    dry_run: Annotated[bool, Field(description="Only count them.")] = False


class Withdrawn(Value):
    """What is withdrawn with a device's measurements."""

    measurements: int
    schedules: Annotated[int, Field(description="Chosen because of such a measurement.")]
    cost_models: Annotated[int, Field(description="Active ones that may be trained on one.")]
    jobs: Annotated[list[str], Field(description="Jobs that exported such schedules.")]


class WorkerStatus(Value):
    """A worker process."""

    id: str
    host_id: str
    info: WorkerInfo
    busy_with: str
    state: WorkerState
    started_at: float
    last_seen: float
    uptime_sec: float
    silent_sec: Annotated[float, Field(description="Seconds since it was last seen.")]


def find_unshared_locks(devices: Sequence[DeviceStatus], workers: Sequence[WorkerStatus]) -> list[str]:
    """Return `DEVICE and WORKER` for each pair on one host without a common lock file."""
    return [
        f"{device.name} and {worker.id}"
        for device in devices
        for worker in workers
        if device.online and not device.info.accelerator and worker.state in AT_WORK
        if not share_locks(device.host_id, device.info.lock_file, worker.host_id, worker.info.lock_file)
    ]


class RoundOnWorker(Value):
    """A round on a worker, with its trials on one device."""

    round_id: int
    job_id: Annotated[str | None, Field(description=PRIVATE)]
    job_name: Annotated[str | None, Field(description=PRIVATE)]
    task_index: Annotated[int | None, Field(description=PRIVATE)]
    task_name: Annotated[str | None, Field(description=PRIVATE)]
    state: RoundState
    worker: str
    device: Annotated[str | None, Field(description="null: nothing was timed yet.")]
    trials: Annotated[int, Field(description="Candidates with an outcome on this device.")]
    failures: int
    measuring_sec: Annotated[float, Field(description="How long these held the device.")]
    started_at: Annotated[float, Field(description="When its last attempt began.")]
    finished_at: float | None


class StageOnWorker(Value):
    """An import, a training or a finish on a worker."""

    id: int
    job_id: Annotated[str | None, Field(description=PRIVATE)]
    job_name: Annotated[str | None, Field(description=PRIVATE)]
    kind: StageKind
    worker: str
    started_at: float
    finished_at: Annotated[
        float | None, Field(description="null: it still runs. For a dead worker: when it was last seen.")
    ]


class FleetActivity(Value):
    """What ran within a time window that ends now, and what waits."""

    current_time: Annotated[float, Field(description="By the database's clock.")]
    since: float
    rounds: Annotated[list[RoundOnWorker], Field(description="Rounds, by start.")]
    stages: Annotated[list[StageOnWorker], Field(description="Other work of workers, by start.")]
    is_complete: Annotated[
        bool, Field(description="false: older rounds or stages in the window were omitted.")
    ]
    queued_rounds: Annotated[int, Field(description="Planned rounds that no worker has begun.")]
    jobs: Annotated[dict[str, int], Field(description="Active jobs of all owners, by state.")]
