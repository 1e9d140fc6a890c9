# mypy: disable-error-code="empty-body"
"""Child process that holds RPC sessions with devices and runs libraries and models on them."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mallorn.core.fleet_key import FleetKey
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.values.disturbance import Disturbance
from mallorn.core.values.machine import AcceleratorAttributes
from mallorn.workers.device.device_class import DeviceClass, Endpoint
from mallorn.workers.device.session_gateway import GATEWAY_VARIABLE, SessionGateway
from mallorn.workers.device.slice_timing_result import Slice
from mallorn.workers.device.tracker_client import NO_KEY
from mallorn.workers.host.load_meter import Load
from mallorn.workers.interfaces.hardware_probes import Probe
from mallorn.workers.interfaces.tensor_arguments import Arguments
from mallorn.workers.interfaces.whole_model_engine import LoadedEngine
from mallorn.workers.subprocesses.child_process import Child
from mallorn.workers.subprocesses.typed_method import Given, method

DEVICE_WAIT_SEC: Final = 300.0
# Added to a wait or a candidate's own timeout: upload, arguments, a slow network.
GRACE_SEC: Final = 20.0


@dataclass(frozen=True, slots=True)
class LibraryRun:
    """The result of running a library on a device."""

    outcome: Outcome
    run_us: tuple[float, ...] = ()
    error: str = ""
    run_ms: float | None = None  # wall time including upload and arguments
    disturbed: float | None = None  # share of timings with CPU contention; None: unknown
    disturbance: Disturbance | None = None


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A compiled model to load on a device: its library and inputs are paths on this host."""

    tracker: str
    target: str
    library: str
    inputs: str
    key: str  # marks its runs in the device's log
    like: DeviceClass | None = None  # required device class; None: any


def _limit_beyond(parameter: str) -> Callable[[Given], float]:
    return lambda arguments: float(arguments[parameter]) + GRACE_SEC


def _limit_with_device_wait(arguments: Given) -> float:
    return float(arguments["timeout_sec"]) + DEVICE_WAIT_SEC + GRACE_SEC


class Runner(Child):
    """Child process that holds a device and runs libraries and models on it.

    A tracker (HOST:PORT) and a target identify a device. Its RPC session stays open until a
    candidate fails on the device, another device is used, or `release_devices` is called.
    `artifact` is the path of a library; `candidate_key` marks the run in the device's own
    log. Methods on models and on the host's load raise CannotRun, or Unavailable if the
    device was lost. In a full sandbox, it can connect to nothing: its parent opens the
    sessions and sends it their sockets.
    """

    MODULE = "mallorn.workers.tvm.runner_child"
    TAKES_SOCKETS = True

    def __init__(
        self,
        *,
        key: FleetKey = NO_KEY,
        name: str = "",
        room: Path | None = None,
        others: tuple[tuple[str, int], ...] = (),
    ) -> None:
        """Keep the fleet key in this parent process, which opens the sessions."""
        super().__init__(name=name, room=room, others=others)
        self._gateway = SessionGateway(key)

    def inherited_sockets(self) -> dict[str, socket.socket]:
        return {GATEWAY_VARIABLE: self._gateway.connect_runner()}

    @method(limit_sec=_limit_beyond("wait_sec"))
    def take_device(
        self,
        tracker: str,
        target: str,
        wait_sec: float = DEVICE_WAIT_SEC,
        hold: bool = False,
        like: DeviceClass | None = None,
    ) -> Endpoint:
        """Take a device, of the class `like` if given, and return its identity.

        A device that is already held is kept if it answers and is of the class. If it is
        lost, later calls take another one of the class. With `hold`, nothing else is timed
        on its host until the next candidate has run. Raises NoDevice if none is registered,
        Unavailable if all stay busy or cannot be reached.
        """

    @method(limit_sec=lambda values: float(values["timeout_sec"]) + float(values["patience_sec"]) + GRACE_SEC)
    def time_candidate(
        self,
        tracker: str,
        target: str,
        artifact: str,
        args: Arguments,
        evaluator: EvaluatorOptions,
        stopping: str,
        candidate_key: str,
        timeout_sec: float,
        patience_sec: float,
        best_us: float | None = None,
    ) -> LibraryRun:
        """Time a library with the stopping rule `stopping`. Timings disturbed by other
        processes on the device's CPUs are repeated for at most `patience_sec`. Raises
        Unavailable if the device was lost."""

    @method(limit_sec=_limit_beyond("timeout_sec"))
    def run_and_save_arrays(
        self,
        tracker: str,
        target: str,
        artifact: str,
        inputs: str,
        outputs: str,
        candidate_key: str,
        timeout_sec: float,
    ) -> LibraryRun:
        """Call a library once with arrays of `inputs` (npz); save all to `outputs`."""

    @method(limit_sec=_limit_beyond("timeout_sec"))
    def time_probes(
        self, tracker: str, target: str, folder: str, probes: Sequence[Probe], timeout_sec: float
    ) -> list[Slice]:
        """Run the probes of one library; return the shortest slice (series of runs) of each,
        or an empty list if a probe fails. Raises Unavailable if the device was lost."""

    @method(limit_sec=_limit_with_device_wait)
    def accelerator_attributes(self, tracker: str, target: str, timeout_sec: float) -> AcceleratorAttributes:
        """Return what the runtime of a device's accelerator says of it."""

    @method(limit_sec=_limit_with_device_wait)
    def load_model(self, model: DeviceModel, timeout_sec: float) -> LoadedEngine:
        """Load a model on a device; later calls reload it if the session was lost."""

    @method(limit_sec=_limit_with_device_wait)
    def save_model_outputs(self, model: DeviceModel, outputs: str, timeout_sec: float) -> int:
        """Run a model once, write its outputs in order and return their number."""

    @method(limit_sec=_limit_with_device_wait)
    def time_model(self, model: DeviceModel, number: int, timeout_sec: float) -> list[float]:
        """Time `number` runs with exclusive use of the host; return microseconds."""

    @method(limit_sec=_limit_with_device_wait)
    def time_model_kernels(self, model: DeviceModel, seconds: float, timeout_sec: float) -> dict[str, float]:
        """Measure for `seconds`; return the microseconds per run that each kernel takes."""

    @method(limit_sec=60.0)
    def drop_model(self, model: DeviceModel) -> None:
        """Release this process's handle of a model; a later call loads the model again."""

    @method(limit_sec=_limit_with_device_wait)
    def host_load(self, tracker: str, target: str, timeout_sec: float) -> Load:
        """Return the other programs' load on the device's host since the last call."""

    @method(limit_sec=60.0)
    def release_devices(self) -> None:
        """Release all devices so that other workers can use them."""
