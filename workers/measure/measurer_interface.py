"""The Measurer interface: it builds and times the candidates of a round, as a stream of results."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from mallorn.core.errors import InvalidRequest, Unavailable
from mallorn.core.job_options import JobOptions
from mallorn.core.registry import VIRTUAL_DEVICES
from mallorn.core.settings import Settings
from mallorn.core.targets import Target
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.trial import Trial
from mallorn.searchers.space import Candidate, Sketch
from mallorn.workers.device.device_class import DeviceClass, Endpoint
from mallorn.workers.interfaces.candidate_compiler import Library
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.subprocesses.process_pool import ChildPool

UNDECLARED: Final = "the measurer does not declare its virtual device"
DECLARE: Final = f"set virtual_device = NAME in the class; names: {', '.join(sorted(VIRTUAL_DEVICES))}"


@dataclass(frozen=True, slots=True)
class Program:
    """A workload, as measurers need it. Its schedules are the candidates."""

    key: str
    tir: str  # tvm.ir.save_json of its module
    args: Arguments
    flops: float


@dataclass(frozen=True, slots=True)
class MeasureInput:
    """A candidate to measure, and its number in the round."""

    slot: int
    candidate: Candidate
    sketch: Sketch


def number_candidates(entries: Iterable[tuple[Candidate, Sketch]]) -> tuple[MeasureInput, ...]:
    return tuple(MeasureInput(n, candidate, sketch) for n, (candidate, sketch) in enumerate(entries))


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The result of measuring a candidate: once, or in a pass."""

    slot: int
    trial: Trial
    endpoint: Endpoint | None = None  # None: it never reached a device
    disturbance: Disturbance | None = None  # None: it was not timed


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """A device without hardware: what it `lacks` for a job, and a `hint` for its user."""

    endpoint: Endpoint
    lacks: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Tools:
    """Resources that a worker keeps between rounds; children start when first used."""

    settings: Settings
    builders: ChildPool[Library]
    runner: Runner
    room: Path | None = None  # folder in which the children may write
    like: DeviceClass | None = None  # class of the devices that may time; None: any


class Need(StrEnum):
    """Steps of a job's finish, as its report names them, that some measurers cannot do."""

    CHECK = "check what the schedules compute"
    TIME = "time the whole model"


@dataclass(frozen=True, slots=True)
class DeviceSeconds:
    """Seconds of a round's device by state, and its name."""

    device: str = ""
    device_sec: float = 0.0  # running candidates
    build_wait_sec: float = 0.0  # held, while nothing built was left to run
    device_wait_sec: float = 0.0  # a built candidate waited for a device


class Measurer(ABC):
    """Builds and times candidates. `mallorn/core/registry.py` lists all measurers.

    Contract
    - `measure` yields exactly one MeasureResult per candidate, as soon as it is known, in any order. If a
      time turns out to have been disturbed, it is yielded again, with an upper bound as trial.
    - A candidate that crashes, hangs or miscompiles affects no other one: its trial has the error.
    - A device runs one candidate at a time, while no compiler runs on the same cores.
    - Closing the generator early stops the work and leaves no process that runs a candidate.
    - `best_us` is the task's fastest time in this measuring context, as far as the round knows it: a
      candidate far slower than that, or than another one, need not be timed precisely.
    - A finish calls `measure_in_passes` for the best candidates. Each has at least one trial,
      and all its trials count. A candidate that falls far behind or fails has fewer than the others.
    - Raises NoDevice if no device serves the target, Unavailable if the tracker does not answer.

    A measurer that needs no hardware declares in `virtual_device` one of VIRTUAL_DEVICES,
    or inherits it. Its jobs get the target with that device, whatever name they chose the
    measurer by (ADR 0046). It implements `virtual_device_for`, gives each MeasureResult an
    endpoint whose host is the virtual device, and refuses in `require` what it cannot do.
    """

    #: One of mallorn.core.registry.VIRTUAL_DEVICES; empty if devices of the target measure.
    virtual_device: ClassVar[str] = ""
    #: How the last `measure` used its device; measurers without one leave it empty.
    device_seconds: DeviceSeconds = DeviceSeconds()

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        """Return a worker's measurer. Raises Unavailable if it lacks a setting."""
        return cls()

    @abstractmethod
    def measure(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        """Build and time every candidate once; yield each result at once."""

    def measure_in_passes(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        """Measure all candidates up to `passes` times, in turn, under the same conditions."""
        return [result for _ in range(passes) for result in self.measure(program, target, inputs, options)]

    def virtual_device_for(
        self, tasks: Mapping[str, str], target: Target, options: JobOptions
    ) -> VirtualDevice | None:
        """Return the virtual device that measures a job; None, as here, if real devices do.

        Called once per job with the names of its tasks by Program.key. Raises
        InvalidRequest if none of them can be measured.
        """
        return None

    def require(self, need: Need) -> bool:
        """Return True if this step of a finish is possible, else raise MallornError."""
        return True


class DetachedMeasurer(Measurer):
    """Refuses to time anything: its jobs wait for results of batches (ADR 0063)."""

    def measure(self, *_args: Any, **_options: Any) -> Generator[MeasureResult, None, None]:
        raise Unavailable("a detached device times batches only", hint="mallorn batch next JOB -o FILE")

    def require(self, need: Need) -> bool:
        if need is Need.TIME:
            raise InvalidRequest("a batch carries kernels, not the whole model", hint="mallorn bench MODEL")
        return True
