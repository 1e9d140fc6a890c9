"""Asks NVML what slows a GPU during a timing: heat, its power supply, other processes."""

import importlib
import os
import time
from typing import Any, Final

from mallorn.workers.device.device_kind import AcceleratorLoad, AcceleratorMeter

LIBRARY: Final = "pynvml"  # of the package nvidia-ml-py
RECENT_SEC: Final = 2.0  # NVML samples the use of processes once or twice a second
#: Bits of NVML's reasons for a lower clock, the more specific ones first. The GPU's own power limit
#: is left out: every kernel that draws as much power runs at that clock, whenever it runs.
SLOWDOWNS: Final = ((0x20 | 0x40, "heat"), (0x80, "its power supply"), (0x08, "heat or its power supply"))


class GpuMeter(AcceleratorMeter):
    """Observes one GPU through NVML. Without an answer from NVML, it reports nothing.

    Create it before this process has a CUDA context: the pid that appears on the GPU
    afterwards is this process's, also in a container, whose own pids differ from NVML's.
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

    def read_load(self) -> AcceleratorLoad:
        """Return what slows the GPU. Call this right after a timing, while it is warm."""
        if self._nvml is None:
            return AcceleratorLoad(None)
        try:
            losses = self._speed_losses()
        except self._nvml.NVMLError_GpuIsLost:
            return AcceleratorLoad(1.0, ("the driver lost the GPU",))
        except self._nvml.NVMLError:
            return AcceleratorLoad(None)
        return AcceleratorLoad(
            min(1.0, sum(share for share, _ in losses)), tuple(words for _, words in losses)
        )

    def power_limit(self) -> str:
        """Return the GPU's power limit as `+300W`, or nothing if it is the default."""
        if self._nvml is None:
            return ""
        try:
            limit = self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._gpu)
            default = self._nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._gpu)
        except self._nvml.NVMLError:
            return ""
        return f"+{limit / 1000:.0f}W" if limit != default else ""

    def count_uncorrected_errors(self) -> int:
        """Return the uncorrected memory errors since the driver started; 0 if unknown."""
        if self._nvml is None:
            return 0
        kinds = self._nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, self._nvml.NVML_VOLATILE_ECC
        try:
            return int(self._nvml.nvmlDeviceGetTotalEccErrors(self._gpu, *kinds))
        except self._nvml.NVMLError:
            return 0

    def _speed_losses(self) -> list[tuple[float, str]]:
        """Return the shares of its speed that the GPU lost, each with its cause."""
        nvml, gpu = self._nvml, self._gpu
        losses = []
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)
        if cause := next((words for bits, words in SLOWDOWNS if reasons & bits), None):
            clock = nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM)
            max_clock = nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)
            watts = nvml.nvmlDeviceGetPowerUsage(gpu) / 1000
            celsius = nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
            state = f"{clock} of {max_clock} MHz, {celsius} °C, {watts:.0f} W"
            losses.append((max(0.0, 1 - clock / max_clock), f"{cause} slowed the GPU down ({state})"))

        # This process's pid in NVML came with its context. If it is unclear, others are not counted.
        if self._pid is None:
            pids = self._pids()
            new_pids = {os.getpid()} & pids or pids - self._pids_before
            self._pid = next(iter(new_pids)) if len(new_pids) == 1 else None
        # Ignore earlier use: it was the last session's, or did not disturb this one.
        since_us = round(max(self._began_sec, time.time() - RECENT_SEC) * 1e6)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(gpu, since_us)
        except (nvml.NVMLError_NotFound, nvml.NVMLError_NotSupported):
            return losses  # no process used the GPU, or it has no such counters
        shares = {s.pid: s.smUtil / 100 for s in samples if self._pid is not None and s.pid != self._pid}
        if share := sum(shares.values()):
            losses.append((share, f"other processes used {share:.0%} of the GPU"))
        return losses

    def _pids(self) -> set[int]:
        return {sample.pid for sample in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._gpu)}
