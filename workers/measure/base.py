"""The Measurer seam: build and time the candidates of one round, as a stream."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Self

from mallorn.core.options import JobOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.settings import Settings
from mallorn.core.targets import Target
from workers.children.pool import ChildPool
from workers.device.endpoint import Endpoint
from workers.faces.compiler import Library
from workers.faces.runner import Runner
from workers.faces.values import Arguments
from workers.search.space import Candidate, Sketch


@dataclass(frozen=True, slots=True)
class Program:
    """The workload that candidates are schedules of."""

    key: str
    tir: str  # tvm.ir.save_json of its module
    args: Arguments
    flops: float


@dataclass(frozen=True, slots=True)
class Slot:
    """One candidate to measure and its place in the round."""

    slot: int
    candidate: Candidate
    sketch: Sketch


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a slot. `run_us` is empty unless the outcome is ok."""

    slot: int
    outcome: Outcome
    run_us: tuple[float, ...] = ()
    error: str = ""
    build_ms: float | None = None
    run_ms: float | None = None
    endpoint: Endpoint | None = None  # None: never reached a device

    @property
    def latency_us(self) -> float | None:
        """The time of the candidate, as the dataset keeps it."""
        return median(self.run_us) if self.run_us else None


@dataclass(frozen=True, slots=True)
class Tools:
    """What a worker keeps warm between rounds; nothing is started before it is used."""

    settings: Settings
    builders: ChildPool[Library]
    runner: Runner


class Measurer(ABC):
    """Builds and times candidates.

    Contract
    - `measure` yields exactly one Result a slot, as soon as it is known, in any order.
    - A candidate that crashes, hangs or miscompiles costs its own slot: the error is a Result.
    - One candidate at a time runs on a device, and no compiler runs beside it on the same cores.
    - Closing the generator early stops the work and leaves no process of this round running a candidate.
    - `best_us` is the fastest of the task in this measuring context, as far as the round knows it: who is far
      behind need not be timed to the last digit.
    - Raises NoDevice when no device serves the target, Unavailable when the tracker does not answer.
    """

    @classmethod
    @abstractmethod
    def from_tools(cls, tools: Tools) -> Self:
        """The measurer of a worker. Raises Misconfigured when a setting that it needs is missing."""

    @abstractmethod
    def measure(
        self,
        program: Program,
        target: Target,
        slots: Sequence[Slot],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[Result, None, None]:
        """Measure every slot once."""
