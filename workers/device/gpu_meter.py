"""Asks NVML for what slows a GPU down while it times: heat, a failing power supply, other processes."""

import importlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

LIBRARY: Final = "pynvml"  # of the package nvidia-ml-py
RECENT_SEC: Final = 2.0  # NVML counts what processes use once or twice a second
#: Bits of NVML's reasons for a lower clock, the more specific ones first. The limit of its own power is none:
#: every kernel that draws as much runs at that clock, whenever it runs.
SLOWDOWNS: Final = (
    (0x20 | 0x40, "heat"),
    (0x80, "its power supply"),
    (0x08, "heat or its power supply"),
)


@dataclass(frozen=True, slots=True)
class GpuLoad:
    """Reasons for which a GPU just ran below its full speed."""

    share: float | None  # of its speed that it lost to heat, supply or others; None: not known
    words: tuple[str, ...] = ()


class GpuMeter:
    """Looks at one GPU. Without NVML, or where NVML does not answer, nothing is known.

    It must be made before this process has a context: that tells which process of the GPU is this one, also
    in a container, whose numbers of processes are other ones.
    """

    def __init__(self, uuid: str) -> None:
        self._began_sec = time.time()
        self._pid: int | None = None
        self._before: set[int] = set()
        self._nvml: Any = None
        try:
            nvml = importlib.import_module(LIBRARY)
            nvml.nvmlInit()
        except Exception:  # not installed, or its library is not there: NVML's errors are its own
            return
        try:
            self._gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
            self._nvml = nvml
            self._before = self._pids()
        except nvml.NVMLError:
            self._nvml = None

    def look(self) -> GpuLoad:
        """Return what disturbs the GPU now; to be asked while it is still warm from what was timed."""
        if self._nvml is None:
            return GpuLoad(None)
        try:
            slowdowns, others = list(self._slowdowns()), list(self._others())
        except self._nvml.NVMLError_GpuIsLost:
            return GpuLoad(1.0, ("the driver lost the GPU",))
        except self._nvml.NVMLError:
            return GpuLoad(None)
        share = min(1.0, sum(share for share, _ in (*slowdowns, *others)))
        return GpuLoad(share, tuple(words for _, words in (*slowdowns, *others)))

    def power_limit(self) -> str:
        """Return the limit of the GPU's power as `+300W`, where it is not the GPU's own; else nothing."""
        if self._nvml is None:
            return ""
        try:
            limit = self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._gpu)
            own = self._nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._gpu)
        except self._nvml.NVMLError:
            return ""
        return f"+{limit / 1000:.0f}W" if limit != own else ""

    def _slowdowns(self) -> Iterator[tuple[float, str]]:
        nvml, gpu = self._nvml, self._gpu
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
        cause = next((words for bits, words in SLOWDOWNS if reasons & bits), None)
        if cause is None:
            return
        clock = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
        most = nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
        watts = nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
        celsius = nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
        state = f"{clock} of {most} MHz, {celsius} °C, {watts:.0f} W"
        yield max(0.0, 1 - clock / most), f"{cause} slowed the GPU down ({state})"

    def _others(self) -> Iterator[tuple[float, str]]:
        """Yield what other processes used of the GPU; nothing where this one cannot be told from them."""
        own = self._own_pid()
        # What was used before was the device's own last session, or did not disturb this one.
        since_us = round(max(self._began_sec, time.time() - RECENT_SEC) * 1e6)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(self._gpu, since_us)
        except (self._nvml.NVMLError_NotFound, self._nvml.NVMLError_NotSupported):
            return  # nobody used it, or it does not count
        used = {each.pid: each.smUtil / 100 for each in samples if own is not None and each.pid != own}
        if share := sum(used.values()):
            yield share, f"other processes used {share:.0%} of the GPU"

    def _own_pid(self) -> int | None:
        """Return this process's number as NVML has it: the one that came when its context was made."""
        if self._pid is None:
            pids = self._pids()
            new = {os.getpid()} & pids or pids - self._before
            self._pid = next(iter(new)) if len(new) == 1 else None
        return self._pid

    def _pids(self) -> set[int]:
        return {each.pid for each in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu)}
