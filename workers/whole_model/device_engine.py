"""A whole model on a device, over RPC: loaded, asked and raced like an engine of this host."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

from mallorn.core.errors import MallornError
from mallorn.core.targets import Target
from workers.device.device_class import DeviceClass
from workers.host.load_meter import Load, wait_for_quiet
from workers.interfaces.device_runner import DeviceModel, Runner
from workers.interfaces.whole_model_engine import RUN_TIMEOUT_SEC, LoadedEngine
from workers.subprocesses.errors import ChildError

T = TypeVar("T")


class DeviceFailed(ChildError):
    """A device did not load, run or time a whole model."""


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The devices that may hold a model, and who holds the session with the one that does."""

    runner: Runner
    tracker: str
    target: Target
    like: DeviceClass | None = None
    folder: Path | None = None  # where the runner writes answers; None: where the model's files lie


class DeviceEngine:
    """A model on a device. Devices serve one session at a time, so all engines share the runner's.

    What a model brings down loses the others, too: they are loaded again when they are asked the next time.
    """

    pid: Final = None  # no process of this host

    def __init__(self, seat: DevicePool, name: str) -> None:
        self._seat = seat
        self._name = name
        self._model: DeviceModel | None = None
        self.alive = True

    def start(self) -> None:
        """The runner starts when it is asked."""

    def suspend(self) -> None:
        """An engine that is not asked does nothing: TVM's threads sleep."""

    def resume(self) -> None:
        """It was not suspended."""

    def kill(self) -> None:
        """Have the device forget the model."""
        if self.alive and self._model is not None and self._seat.runner.alive:
            self._seat.runner.drop_model(self._model)
        self.alive = False

    def begin_loading(self, library: Path, inputs: Path) -> "DeferredLoad":
        """As the engines of a host begin; here nothing happens before the wait."""
        seat = self._seat
        self._model = DeviceModel(
            seat.tracker, seat.target.text, str(library), str(inputs), f"model/{self._name}", seat.like
        )
        return DeferredLoad(lambda: self._ask(lambda model: seat.runner.load_model(model, RUN_TIMEOUT_SEC)))

    def save_outputs(self, outputs_npz: str) -> int:
        """Run once and write the outputs in order; how many there are. Raises DeviceFailed."""
        ask = self._seat.runner.save_model_outputs
        return self._ask(lambda model: ask(model, outputs_npz, RUN_TIMEOUT_SEC))

    def time_bursts(self, bursts: int, number: int) -> list[float]:
        """The median latency in microseconds of each burst of `number` calls. Raises DeviceFailed."""
        ask = self._seat.runner.time_model
        return [median(self._ask(lambda model: ask(model, number, RUN_TIMEOUT_SEC))) for _ in range(bursts)]

    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Microseconds that a run spends in each of its kernels; takes `seconds`. Raises DeviceFailed."""
        ask = self._seat.runner.time_model_kernels
        return self._ask(lambda model: ask(model, seconds, RUN_TIMEOUT_SEC + seconds))

    def _ask(self, work: Callable[[DeviceModel], T]) -> T:
        if self._model is None:
            raise RuntimeError("no model yet: begin_loading first")
        with _failing():
            return work(self._model)


@dataclass(frozen=True, slots=True)
class DeferredLoad:
    """What a load becomes when somebody waits for it."""

    wait: Callable[[], LoadedEngine]


class DeviceMeter:
    """How busy others kept the device's host, as the device counts it."""

    def __init__(self, seat: DevicePool) -> None:
        self._seat = seat

    def look(self) -> Load:
        """The load since the last look. Raises DeviceFailed."""
        with _failing():
            return self._seat.runner.host_load(self._seat.tracker, self._seat.target.text, RUN_TIMEOUT_SEC)

    def wait_for_quiet(self, patience_sec: float) -> None:
        """Return once the host is quiet or the time is over."""
        wait_for_quiet(self.look, patience_sec)


@contextmanager
def _failing() -> Iterator[None]:
    """Whatever keeps a device from answering ends its engine, as a crash ends one of this host."""
    try:
        yield
    except ChildError:
        raise
    except MallornError as error:
        raise DeviceFailed(error.message, hint=error.hint) from None
