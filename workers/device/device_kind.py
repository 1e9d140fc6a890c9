"""The contract of a kind of hardware in processes that run programs on it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import Target


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator as its driver describes it."""

    index: int  # among those that this process sees
    uuid: str
    name: str
    memory_bytes: int
    driver: str  # its version
    capability: int = 0  # its generation as its maker counts

    def described(self) -> str:
        return f"{self.index} ({self.uuid}, {self.name})"


@dataclass(frozen=True, slots=True)
class AcceleratorLoad:
    """The share of its speed that an accelerator lost during a timing, and the reasons."""

    share: float | None  # of its speed, lost to heat, supply or other processes; None: unknown
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelError:
    """An error of the driver that a kernel caused."""

    message: str
    timed_out: bool  # the driver ended the kernel


class AcceleratorMeter(ABC):
    """Observes one accelerator. Without an answer from its driver, it reports nothing.

    Create it before this process computes on the accelerator.
    """

    @abstractmethod
    def read_load(self) -> AcceleratorLoad:
        """Return what slows it. Call this right after a timing, while it is warm."""

    @abstractmethod
    def power_limit(self) -> str:
        """Return its power limit as `+300W`, or nothing if it is the default."""

    @abstractmethod
    def count_uncorrected_errors(self) -> int:
        """Return the uncorrected memory errors since the driver started; 0 if unknown."""


class Clock(Protocol):
    """Times work on a device by marks in its queue."""

    def begin_run(self) -> None: ...

    def record_mark(self) -> int: ...

    def end_run(self) -> None: ...

    def seconds_between(self, begin: int, end: int) -> float: ...


class CacheClock(Clock, Protocol):
    """A clock that can also empty the device's cache within a run."""

    def queue_memory_fill(self) -> None: ...


class DeviceKind:
    """What a process that runs programs must do for a kind of hardware; here for a CPU.

    The driver, its libraries and its Python packages are loaded in the methods, not by the module.
    """

    #: Whether a GPU's driver creates sockets, which the sandbox then allows; they cannot be connected.
    drives_gpu = False
    #: The command that tells more of a fault.
    fault_hint = ""
    #: Whether an error in a program may leave a session unusable, so that it is asked after each.
    breaks_sessions = False

    def accelerators(self) -> Sequence[Accelerator]:
        """Return those that this process sees. Raises HostFault without a driver that works."""
        return ()

    def choose(self, accelerators: Sequence[Accelerator], name: str) -> Accelerator | None:
        """Return the one whose index or UUID is `name`, or the first if `name` is empty; None for
        a CPU. Raises InvalidTarget if there is none."""
        return None

    def first(self) -> Accelerator | None:
        """Return the first, as a child process finds it, so that this process does not load
        the driver. Raises InvalidTarget without any."""
        return None

    def show_only(self, accelerator: Accelerator) -> None:
        """Make it the only one that this process and its children see."""

    def own_target(self) -> Target:
        """Return the target of this machine's first accelerator. Raises InvalidTarget without one."""
        raise InvalidTarget("this kind of hardware has no accelerators", hint="--target local")

    def why_unsupported(self, target: Target) -> str:
        """Return why this host's accelerator cannot run code for the target; empty if it can."""
        return ""

    def load_runtime(self) -> None:
        """Load what TVM's runtime needs for this hardware. Raises HostFault."""

    def meter(self, uuid: str) -> AcceleratorMeter | None:
        return None

    def cache_clock(self) -> CacheClock | None:
        """Return the clock of the first accelerator, after `load_runtime`; None for a CPU."""
        return None

    def paths(self, uuid: str) -> Iterator[tuple[str, int]]:
        """Yield the paths, with Landlock's rights, by which a session uses this accelerator."""
        yield from ()

    def fault(self) -> str:
        """Return why the accelerator cannot serve another session, or nothing."""
        return ""

    def explain_error(self, text: str) -> KernelError | None:
        """Explain the driver's error that a message of TVM names; None if it names none."""
        return None

    def enable_graphs(self, enabled: int) -> None:
        """Launch kernels of models by recorded graphs, if there are any, or one by one."""


def tvm_device_type(target: Target) -> str:
    """Return TVM's name of the type of device on which the target's programs run."""
    return "cpu" if target.runs_on_cores else target.kind


def device_kind(target: Target) -> DeviceKind:
    return target.hardware.part(DeviceKind)
