"""The Measurer seam: build and time the candidates of one round, as a stream."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self

from mallorn.core.job_options import JobOptions
from mallorn.core.settings import Settings
from mallorn.core.targets import Target
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.trial import Trial
from searchers.space import Candidate, Sketch
from workers.device.device_class import DeviceClass, Endpoint
from workers.interfaces.candidate_compiler import Library
from workers.interfaces.device_runner import Runner
from workers.interfaces.tensor_arguments import Arguments
from workers.subprocesses.process_pool import ChildPool


@dataclass(frozen=True, slots=True)
class Program:
    """The workload that candidates are schedules of."""

    key: str
    tir: str  # tvm.ir.save_json of its module
    args: Arguments
    flops: float


@dataclass(frozen=True, slots=True)
class MeasureInput:
    """One candidate to measure and its place in the round."""

    slot: int
    candidate: Candidate
    sketch: Sketch


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """What became of a slot."""

    slot: int
    trial: Trial
    endpoint: Endpoint | None = None  # None: never reached a device
    disturbance: Disturbance | None = None  # None: it was not timed


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """A device that is none, and what of a job it cannot do, in words with the next step."""

    endpoint: Endpoint
    lacks: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a worker keeps warm between rounds; nothing is started before it is used."""

    settings: Settings
    builders: ChildPool[Library]
    runner: Runner
    room: Path  # where they may write
    like: DeviceClass | None = None  # of the devices that may time; None: any


class Need(StrEnum):
    """What a finish needs beside times, as its report names the steps."""

    CHECK = "check what the schedules compute"
    TIME = "time the whole model"


class Measurer(ABC):
    """Builds and times candidates. Any room may have one: `mallorn/core/registry.py` says where each lies.

    Contract
    - `measure` yields exactly one MeasureResult a slot, as soon as it is known, in any order. A slot whose
      time turns out to have been disturbed is told once more, with a trial that is a bound.
    - A candidate that crashes, hangs or miscompiles costs its own slot: the error is a trial.
    - One candidate at a time runs on a device, and no compiler runs beside it on the same cores.
    - Closing the generator early stops the work and leaves no process of this round running a candidate.
    - `best_us` is the fastest of the task in this measuring context, as far as the round knows it: who is far
      behind that, or behind another of the slots, need not be timed to the last digit.
    - `compare` is how a finish measures the best again. Each slot has a trial or more, and all of a slot's
      count. Who falls far behind or fails has fewer than the others.
    - Raises NoDevice when no device serves the target, Unavailable when the tracker does not answer.

    What follows is for measurers without a device, as `replay` and `simulated`, and all that is made of them.
    They say which of the two they are in `stands_in`: a job that has one gets the target of that stand-in, by
    whatever name it asked (ADR 0046). They answer `stand_in`, give each MeasureResult that endpoint, whose
    host is the stand-in, and refuse in `require` what they have nothing for.
    """

    #: One of mallorn.core.stand_in_measurers.STAND_INS; empty where devices of the target measure.
    stands_in: ClassVar[str] = ""

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        """The measurer of a worker; this one needs no tools. Raises Unavailable for a missing setting."""
        return cls()

    @abstractmethod
    def measure(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        """Measure every slot once."""

    @abstractmethod
    def compare(
        self,
        program: Program,
        target: Target,
        slots: Sequence[MeasureInput],
        options: JobOptions,
        passes: int,
    ) -> list[MeasureResult]:
        """Measure every slot up to `passes` times, in turn, so that all meet the machine in the same mood."""

    def stand_in(self, tasks: Mapping[str, str], target: Target, options: JobOptions) -> VirtualDevice | None:
        """What measures in place of a device; None, as here, where devices of the target do.

        Asked once a job, when its tasks are known: their names by Program.key. Raises InvalidRequest where
        none of them can be measured.
        """
        return None

    def require(self, need: Need) -> bool:
        """True, as here, where TVM's devices serve it; else raises MallornError with the next step."""
        return True
