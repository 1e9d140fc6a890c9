# mypy: disable-error-code="empty-body"
"""The process that holds devices, and runs on them what was built."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mallorn.core.fleet_key import FleetKey
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.outcomes import Outcome
from mallorn.core.values.disturbance import Disturbance
from workers.device.device_class import DeviceClass, Endpoint
from workers.device.session_gateway import GATEWAY_VARIABLE, SessionGateway
from workers.device.slice_timing_result import Slice
from workers.device.tracker_client import NO_KEY
from workers.host.load_meter import Load
from workers.interfaces.hardware_probes import Probe
from workers.interfaces.tensor_arguments import Arguments
from workers.interfaces.whole_model_engine import LoadedEngine
from workers.subprocesses.child_process import Child
from workers.subprocesses.typed_method import Given, method

DEVICE_WAIT_SEC: Final = 300.0
# What it may take on top of a wait or a candidate's own deadline: upload, arguments, a slow network.
GRACE_SEC: Final = 20.0


@dataclass(frozen=True, slots=True)
class LibraryRun:
    """What became of a library on a device."""

    outcome: Outcome
    run_us: tuple[float, ...] = ()
    error: str = ""
    run_ms: float | None = None  # with all that belongs to it
    disturbed: float | None = None  # the share of its times in which others had its processors; None: unknown
    disturbance: Disturbance | None = None


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """A whole model as a device holds it: a library of this host and its inputs, for devices of a target."""

    tracker: str
    target: str
    library: str
    inputs: str
    key: str  # of its runs in the device's log
    like: DeviceClass | None = None  # of the device; None: any


def _on_top_of(parameter: str) -> Callable[[Given], float]:
    return lambda given: float(given[parameter]) + GRACE_SEC


def _with_a_wait(given: Given) -> float:
    return float(given["timeout_sec"]) + DEVICE_WAIT_SEC + GRACE_SEC


class Runner(Child):
    """Devices are named by the tracker they are registered with, as HOST:PORT, and their target.

    One that is taken is held, and its RPC session stays open, until a candidate fails on it or `release`.
    `artifact` is a library; `candidate_key` marks the run in the device's own log.
    """

    MODULE = "workers.tvm.runner_child"
    CONNECTS = True

    def __init__(
        self,
        *,
        key: FleetKey = NO_KEY,
        name: str = "",
        room: Path | None = None,
        others: tuple[tuple[str, int], ...] = (),
    ) -> None:
        """`key` is the fleet's; it stays in this process, which opens the sessions."""
        super().__init__(name=name, room=room, others=others)
        self._gateway = SessionGateway(key)

    def connections(self) -> dict[str, socket.socket]:
        return {GATEWAY_VARIABLE: self._gateway.connect()}

    @method(limit_sec=_on_top_of("wait_sec"))
    def identity(
        self,
        tracker: str,
        target: str,
        wait_sec: float = DEVICE_WAIT_SEC,
        hold: bool = False,
        like: DeviceClass | None = None,
    ) -> Endpoint:
        """Take a device of this class, if none is held, and say who it is.

        Whatever is asked for later means one of the same class, should this one be lost.
        With `hold` nothing else is timed on its host until the next candidate is over. A session that was
        lost since the last one is the fault of neither: it gets a successor. Raises NoDevice, Unavailable.
        """

    @method(limit_sec=lambda given: float(given["timeout_sec"]) + float(given["patience_sec"]) + GRACE_SEC)
    def measure(
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
        """Time a library by a stopping rule. Raises Unavailable when the device itself was lost.

        Timings in which others had the device's processors are taken again, for as long as `patience_sec`.
        """

    @method(limit_sec=_on_top_of("timeout_sec"))
    def run_outputs(
        self,
        tracker: str,
        target: str,
        artifact: str,
        inputs: str,
        outputs: str,
        candidate_key: str,
        timeout_sec: float,
    ) -> LibraryRun:
        """Call a library once with the arrays of an npz file, and save all of them after the call."""

    @method(limit_sec=_on_top_of("timeout_sec"))
    def clock(
        self, tracker: str, target: str, folder: str, probes: Sequence[Probe], timeout_sec: float
    ) -> list[Slice]:
        """The shortest run of each probe of one library in `folder`; none where it fails.

        Raises Unavailable when the device itself was lost.
        """

    @method(limit_sec=_with_a_wait)
    def load_model(self, model: DeviceModel, timeout_sec: float) -> LoadedEngine:
        """Have a device hold a model. Raises CannotRun, and Unavailable when the device itself was lost.

        Whatever is asked of a model later loads it again where the device's session was lost meanwhile.
        """

    @method(limit_sec=_with_a_wait)
    def save_model_outputs(self, model: DeviceModel, outputs: str, timeout_sec: float) -> int:
        """Run a model once and write its outputs in order; how many there are. Raises as `load_model`."""

    @method(limit_sec=_with_a_wait)
    def time_model(self, model: DeviceModel, number: int, timeout_sec: float) -> list[float]:
        """Microseconds of so many runs, with the device's host alone. Raises as `load_model`."""

    @method(limit_sec=_with_a_wait)
    def time_model_kernels(self, model: DeviceModel, seconds: float, timeout_sec: float) -> dict[str, float]:
        """Microseconds that a run spends in each kernel; takes `seconds`. Raises as `load_model`."""

    @method(limit_sec=60.0)
    def drop_model(self, model: DeviceModel) -> None:
        """Have its device forget a model."""

    @method(limit_sec=_with_a_wait)
    def host_load(self, tracker: str, target: str, timeout_sec: float) -> Load:
        """How busy others kept the device's host since the last look. Raises as `load_model`."""

    @method(limit_sec=60.0)
    def release(self) -> None:
        """Give all devices back, for others to use."""
