"""Devices and workers of the fleet, and their recent activity."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from mallorn.core.states import RoundState, StageKind
from mallorn.core.values.base import Value
from mallorn.core.values.machine import Machine

PRIVATE: Final = "Null: another owner's."
LOCKS: Final = (
    "Names the file on which it locks the processors of its host. Processes of one host that name another "
    "file do not wait for each other. Empty: it did not say."
)


class DeviceState(StrEnum):
    """What a device does. Of one that stopped the tracker says so; one that is silent nobody asks after."""

    MEASURING = "measuring"
    IDLE = "idle"
    SILENT = "silent"
    STOPPED = "stopped"


class WorkerState(StrEnum):
    """What a worker does. One that stopped has said so; one that is silent may have died."""

    BUSY = "busy"
    IDLE = "idle"
    SILENT = "silent"
    STOPPED = "stopped"


AT_WORK: Final = WorkerState.BUSY, WorkerState.IDLE


class DeviceInfo(Value):
    """What a device said of itself and its host."""

    address: str = ""
    hostname: str = ""
    machine: Annotated[str, Field(description="Its instruction set, as `x86_64`.")] = ""
    cpu_model: str = ""
    cores: int | None = None
    governor: Annotated[str, Field(description="How the kernel sets the clock of its cores.")] = ""
    accelerator: Annotated[str, Field(description="The GPU's name; empty on a CPU.")] = ""
    gpu_index: Annotated[
        int | None, Field(description="Of the GPU, among those of its host that the device saw.")
    ] = None
    gpu_uuid: Annotated[str, Field(description="Of the GPU, as `nvidia-smi -L` shows it.")] = ""
    gpu_memory_bytes: Annotated[int | None, Field(description="That the GPU has.")] = None
    gpu_driver: Annotated[str, Field(description="Version of the GPU's driver.")] = ""
    is_local: Annotated[bool, Field(description="Its target is what the host was found to be.")] = False
    sandbox: Annotated[
        str,
        Field(description="Walls around what it measures: `full`, `off`, or what is missing."),
    ] = ""
    locks: Annotated[str, Field(description=LOCKS)] = ""
    busy: bool = False
    stopped: bool = False

    @property
    def gpu_words(self) -> str:
        """Name, memory and driver of the GPU as text; empty on a CPU."""
        memory = f", {self.gpu_memory_bytes / 2**30:.0f} GiB" if self.gpu_memory_bytes else ""
        driver = f", driver {self.gpu_driver}" if self.gpu_driver else ""
        return f"{self.accelerator}{memory}{driver}"


class DeviceMachine(Value):
    """What was found out about a device's machine, once for all devices like it."""

    machine: Annotated[Machine | None, Field(description="Null: it is not measured.")] = None
    why: Annotated[str, Field(description="Why it is not measured.")] = ""
    at: Annotated[float | None, Field(description="When that was found out, by the database's clock.")] = None
    builder: Annotated[
        str, Field(description="TVM's version and the digest of the code that measured it; may be empty.")
    ] = ""

    def seen_by(self, builder: str) -> Machine | None:
        """Return the machine, marked as assumed if another builder's code measured it."""
        if self.machine is None or self.builder == builder:
            return self.machine
        return self.machine.model_copy(update={"measured": False})


class WorkerInfo(Value):
    """What a worker said of itself."""

    pid: int | None = None
    tunes: Annotated[bool, Field(description="False: it imports models alone.")] = True
    cost_models: Annotated[
        list[str] | None, Field(description="Those whose libraries it has; null: it did not say.")
    ] = None
    tvm_version: Annotated[str, Field(description="What it builds with; empty: it did not say.")] = ""
    builder: Annotated[
        str,
        Field(description="TVM's version and the digest of the code around it; empty: it did not say."),
    ] = ""
    sandbox: Annotated[
        str,
        Field(description="Walls around its helper processes: `full`, `off`, or what is missing."),
    ] = ""
    locks: Annotated[str, Field(description=LOCKS)] = ""
    stopped: bool = False
    resting: Annotated[
        str, Field(description="Why it takes no work for now: what its host lacks; empty: it does.")
    ] = ""
    roll_call_error: Annotated[
        str, Field(description="Why its last look at the devices came to nothing; empty: it did not.")
    ] = ""


class DeviceStatus(Value):
    """One measuring endpoint."""

    id: int
    name: str
    target: Annotated[str, Field(description="Canonical JSON.")]
    host_id: Annotated[str, Field(description="Equal for all that share a machine.")]
    host_class: Annotated[str, Field(description="Equal for machines whose times compare.")]
    threads: int
    tvm_version: str
    info: DeviceInfo
    machine: Annotated[
        DeviceMachine | None, Field(description="Null: nobody has tried to measure it yet.")
    ] = None
    busy: Annotated[bool, Field(description="A session holds it right now.")]
    state: DeviceState
    last_seen: float
    seen_sec: Annotated[float, Field(description="Seconds since it was last seen.")]
    online: bool


class WithdrawIn(Value):
    """Which of a device's measurements to take back."""

    since: Annotated[
        float | None, Field(description="Seconds since the epoch; null: all that it ever measured.")
    ] = None
    dry_run: Annotated[bool, Field(description="Only count.")] = False


class Withdrawn(Value):
    """What is taken back with a device."""

    measurements: int
    schedules: Annotated[int, Field(description="Chosen by such a measurement.")]
    cost_models: Annotated[int, Field(description="Active ones that may have learned from it.")]
    jobs: Annotated[list[str], Field(description="Whose exports hold such schedules.")]


class WorkerStatus(Value):
    """One worker slot."""

    id: str
    host_id: str
    info: WorkerInfo
    busy_with: str
    state: WorkerState
    started_at: float
    last_seen: float
    uptime_sec: float
    seen_sec: Annotated[float, Field(description="Seconds since it was last seen.")]


def separate_locks(devices: Sequence[DeviceStatus], workers: Sequence[WorkerStatus]) -> list[str]:
    """Return texts that name each online CPU device whose locks differ from its worker's."""
    return [
        f"{device.name} and {worker.id}"
        for device in devices
        for worker in workers
        if device.online and not device.info.accelerator and worker.state in AT_WORK
        if device.host_id == worker.host_id and device.info.locks and worker.info.locks
        if device.info.locks != worker.info.locks
    ]


class RoundOnWorker(Value):
    """A round on a worker, with what it did on one device."""

    round_id: int
    job_id: Annotated[str | None, Field(description=PRIVATE)]
    job_name: Annotated[str | None, Field(description=PRIVATE)]
    task_index: Annotated[int | None, Field(description=PRIVATE)]
    task_name: Annotated[str | None, Field(description=PRIVATE)]
    state: RoundState
    worker: str
    device: Annotated[str | None, Field(description="Null: nothing was timed yet.")]
    trials: Annotated[int, Field(description="Candidates with an outcome on this device.")]
    failures: int
    measuring_sec: Annotated[float, Field(description="How long they held the device.")]
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
        float | None, Field(description="Null: it goes on. Of a dead worker when it was last seen.")
    ]


class FleetActivity(Value):
    """What ran within a window that ends now, and what waits."""

    now: Annotated[float, Field(description="By the database's clock.")]
    since: float
    stints: Annotated[list[RoundOnWorker], Field(description="Rounds, by start.")]
    stages: Annotated[list[StageOnWorker], Field(description="What workers did besides, by start.")]
    complete: Annotated[bool, Field(description="False: older rounds or stages of the window were left out.")]
    queued_rounds: Annotated[int, Field(description="Planned rounds that no worker has begun.")]
    jobs: Annotated[dict[str, int], Field(description="Jobs of all owners that have not ended, by state.")]
