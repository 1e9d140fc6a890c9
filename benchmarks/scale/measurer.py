"""A measurer that builds nothing: it holds a simulated device and sleeps for each candidate."""

import json
import os
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.scale.devices import borrow_device
from mallorn.core.errors import MallornError
from mallorn.core.job_options import JobOptions
from mallorn.core.targets import Target
from mallorn.workers.device.device_class import DeviceClass
from mallorn.workers.device.tracker_client import Address
from mallorn.workers.measure.measurer_interface import (
    MeasureInput,
    Measurer,
    MeasureResult,
    Need,
    Program,
    Tools,
)
from mallorn.workers.process.lease_renewal import sleep_while_leased
from mallorn_research.simulated_device.measurer import simulate_run

NAME: Final = "benchmarks.scale.measurer:SleepingMeasurer"
FOLDER: Final = "SCALE_FOLDER"  # variable that names the folder of the benchmark's own files


class SleepingMeasurer(Measurer):
    """Takes `simulated.device_sec` for each candidate; its time follows the formula of `simulated`.

    Each session with a device appends a line to a file of this process: the device, when the
    session began and ended, and when each candidate began and ended, in monotonic seconds.
    """

    def __init__(self, tracker: Address, like: DeviceClass | None) -> None:
        self._tracker = tracker
        self._like = like

    @classmethod
    def from_tools(cls, tools: Tools) -> Self:
        return cls(tools.settings.tracker_address, tools.like)

    def measure(
        self,
        program: Program,
        target: Target,
        inputs: Sequence[MeasureInput],
        options: JobOptions,
        best_us: float | None = None,
    ) -> Generator[MeasureResult, None, None]:
        if not inputs:
            return
        spans: list[tuple[float, float]] = []
        with borrow_device(self._tracker, target, self._like) as endpoint:
            began_sec = time.monotonic()
            _append("begun", {"device": endpoint.name})
            try:
                for each in inputs:
                    candidate_sec = time.monotonic()
                    sleep_while_leased(options.simulated.device_sec)
                    result = simulate_run(program, target, each, options, endpoint)
                    spans.append((candidate_sec, time.monotonic()))
                    yield result
            finally:
                session = began_sec, time.monotonic()
                _append("sessions", {"device": endpoint.name, "session": session, "spans": spans})

    def require(self, need: Need) -> bool:
        raise MallornError("no model can run on a simulated device")


_lock = threading.Lock()


def _append(suffix: str, entry: dict[str, Any]) -> None:
    path = Path(os.environ[FOLDER]) / f"{os.getpid()}.{suffix}"
    with _lock, path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def count_begun_sessions(folder: Path) -> int:
    """Return how many sessions with devices the processes of a run began so far."""
    return len(_lines(folder, "begun"))


def read_sessions(folder: Path) -> list[dict[str, Any]]:
    """Return all sessions with devices that ended."""
    return [json.loads(line) for line in _lines(folder, "sessions")]


def _lines(folder: Path, suffix: str) -> list[str]:
    return [line for path in folder.glob(f"*.{suffix}") for line in path.read_text().splitlines()]
