"""Asks NVML what slows a GPU during a timing: heat, its power supply, other processes."""

import importlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

LIBRARY: Final = "pynvml"  # of the package nvidia-ml-py
RECENT_SEC: Final = 2.0  # NVML samples the use of processes once or twice a second
#: Bits of NVML's reasons for a lower clock, the more specific ones first. The GPU's own power limit
#: is left out: every kernel that draws as much power runs at that clock, whenever it runs.
SLOWDOWNS: Final = (
    (0x20 | 0x40, "heat"),
    (0x80, "its power supply"),
    (0x08, "heat or its power supply"),
)


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """How far a GPU just ran below its full speed, and why."""

    share: float | None  # of its speed, lost to heat, supply or other processes; None: unknown
    words: tuple[str, ...] = ()


class GpuMeter:
    """Observes one GPU through NVML. If NVML is missing or does not answer, it reports nothing.

    Create it before this process has a CUDA context: the pid that appears on the GPU afterwards is
    this process's, also in a container, whose own pids differ from NVML's.
    """

    def __init__(self, uuid: str) -> None:
        self._began_sec = time.time()
        self._pid: int | None = None
        self._pids_before: set[int] = set()
        self._nvml: Any = None
        try:
            nvml = importlib.import_module(LIBRARY)
            nvml.nvmlInit()
        except Exception:  # pynvml or its library is missing; NVML has errors of its own
            return
        try:
            self._gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = nvml
            self._pids_before = self._pids()
        except nvml.NVMLError:
            self._nvml = None

    def look(self) -> GpuLoad:
        """Return what slows the GPU now; call this right after a timing, while it is warm."""
        if self._nvml is None:
            return GpuLoad(None)
        try:
            slowdowns, other_shares = list(self._slowdowns()), list(self._others())
        except self._nvml.NVMLError_GpuIsLost:
            return GpuLoad(1.0, ("the driver lost the GPU",))
        except self._nvml.NVMLError:
            return GpuLoad(None)
        share = min(1.0, sum(share for share, _ in (*slowdowns, *other_shares)))
        return GpuLoad(share, tuple(words for _, words in (*slowdowns, *other_shares)))

    def power_limit(self) -> str:
        """Return the GPU's power limit as `+300W`, or nothing if it is the GPU's default."""
        if self._nvml is None:
            return ""
        try:
            limit = self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._gpu)
            default = self._nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._gpu)
        except self._nvml.NVMLError:
            return ""
        return f"+{limit / 1000:.0f}W" if limit != default else ""

    def _slowdowns(self) -> Iterator[tuple[float, str]]:
        nvml, gpu = self._nvml, self._gpu
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
        cause = next((words for bits, words in SLOWDOWNS if reasons & bits), None)
        if cause is None:
            return
        clock = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
        max_clock = nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
        watts = nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
        celsius = nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
        state = f"{clock} of {max_clock} MHz, {celsius} °C, {watts:.0f} W"
        yield max(0.0, 1 - clock / max_clock), f"{cause} slowed the GPU down ({state})"

    def _others(self) -> Iterator[tuple[float, str]]:
        """Yield what share other processes used, unless this process's pid is unknown."""
        own = self._own_pid()
        # Earlier use was that of the device's last session, or did not disturb this one.
        since_us = round(max(self._began_sec, time.time() - RECENT_SEC) * 1e6)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._gpu, since_us)
        except (self._nvml.NVMLError_NotFound, self._nvml.NVMLError_NotSupported):
            return  # no process used the GPU, or it has no such counters
        shares = {
            sample.pid: sample.smUtil / 100 for sample in samples if own is not None and sample.pid != own
        }
        if share := sum(shares.values()):
            yield share, f"other processes used {share:.0%} of the GPU"

    def _own_pid(self) -> int | None:
        """Return this process's pid in NVML, which came with its context; None if unclear."""
        if self._pid is None:
            pids = self._pids()
            new = {os.getpid()} & pids or pids - self._pids_before
            self._pid = next(iter(new)) if len(new) == 1 else None
        return self._pid

    def _pids(self) -> set[int]:
        return {sample.pid for sample in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu)}
