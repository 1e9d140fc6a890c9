"""An engine that runs a whole model on a device, with the interface of a local engine."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final, TypeVar

from mallorn.core.errors import MallornError
from mallorn.core.targets import Target
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.host.load_meter import Load
from mallorn.workers.interfaces.device_runner import DeviceModel, Runner
from mallorn.workers.interfaces.whole_model_engine import RUN_TIMEOUT_SEC, LoadedEngine
from mallorn.workers.subprocesses.errors import ChildError

T = TypeVar("T")


class DeviceFailed(ChildError):
    """A device did not load, run or time a whole model."""


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The devices that may run a model, and the process that has a session with one."""

    runner: Runner
    tracker: str
    target: Target
    like: DeviceClass | None = None
    folder: Path | None = None  # where the runner writes outputs; None: in the model's folder


class DeviceEngine:
    """A model on a device. All engines share one session, since a device serves only one at
    a time. If a model crashes it, the others are reloaded at their next call."""

    pid: Final = None  # no process of this host

    def __init__(self, pool: DevicePool, name: str) -> None:
        self._pool = pool
        self._name = name
        self._model: DeviceModel | None = None
        self.alive = True

    def start(self) -> None:
        """Do nothing: the process that runs the model starts with its first call."""

    def suspend(self) -> None:
        """Do nothing: between calls the engine is idle, and TVM's threads sleep."""

    def resume(self) -> None:
        """Do nothing, since `suspend` does nothing."""

    def kill(self) -> None:
        """Remove the model from the device."""
        if self.alive and self._model is not None and self._pool.runner.alive:
            self._pool.runner.drop_model(self._model)
        self.alive = False

    def begin_loading(self, library: Path, inputs: Path) -> Callable[[], LoadedEngine]:
        """Return a function that loads a library; a local engine begins to load at once."""
        pool = self._pool
        self._model = DeviceModel(
            pool.tracker, pool.target.text, str(library), str(inputs), f"model/{self._name}", pool.like
        )
        return lambda: self._run_on_device(lambda model: pool.runner.load_model(model, RUN_TIMEOUT_SEC))

    def save_outputs(self, outputs_npz: str, other_inputs: Sequence[str] = ()) -> int:
        """Run the model once, save its outputs, return their number. Raises DeviceFailed. A
        device takes one draw of inputs, so `other_inputs` is empty."""
        if other_inputs:
            raise ValueError("a device runs one draw of inputs")
        save = self._pool.runner.save_model_outputs
        return self._run_on_device(lambda model: save(model, outputs_npz, RUN_TIMEOUT_SEC))

    def time_bursts(self, bursts: int, number: int) -> list[float]:
        """Return the median latency (us) of each burst of calls. Raises DeviceFailed."""
        run = self._pool.runner.time_model
        return [
            median(self._run_on_device(lambda model: run(model, number, RUN_TIMEOUT_SEC)))
            for _ in range(bursts)
        ]

    def time_kernels(self, seconds: float) -> dict[str, float]:
        """Time kernels for `seconds`; return the us per run of each. Raises DeviceFailed."""
        run = self._pool.runner.time_model_kernels
        return self._run_on_device(lambda model: run(model, seconds, RUN_TIMEOUT_SEC + seconds))

    def _run_on_device(self, work: Callable[[DeviceModel], T]) -> T:
        if self._model is None:
            raise RuntimeError("no model yet: begin_loading first")
        with _raise_device_failed():
            return work(self._model)


def read_device_load(pool: DevicePool) -> Load:
    """Return the load of other programs on a device's host since the last call. Raises DeviceFailed."""
    with _raise_device_failed():
        return pool.runner.host_load(pool.tracker, pool.target.text, RUN_TIMEOUT_SEC)


@contextmanager
def _raise_device_failed() -> Iterator[None]:
    """Turn any MallornError into DeviceFailed, to be handled like a local engine's crash."""
    try:
        yield
    except ChildError:
        raise
    except MallornError as error:
        raise DeviceFailed(error.message, hint=error.hint) from None
