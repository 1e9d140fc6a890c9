"""What slows a GPU down is known by NVML's answers, as an H100 gave them."""

import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mallorn.core.outcomes import is_disturbed
from mallorn.core.values.disturbance import Disturbance
from mallorn.kinds.cuda.device import gpu_meter
from mallorn.kinds.cuda.device.gpu_meter import GpuMeter
from mallorn.workers.device.device_kind import AcceleratorLoad
from mallorn.workers.host.load_meter import Load

UUID = "GPU-4e6b2c1d-0000-0000-0000-000000000000"
IDLE, POWER_CAP, HARDWARE, HOT, HOT_HARDWARE, BRAKE = 0x01, 0x04, 0x08, 0x20, 0x40, 0x80
OURS, THEIRS = 4711, 4712
NOW_SEC = 1_000_000.0


class NVMLError(Exception):
    """As pynvml's."""


class NVMLError_GpuIsLost(NVMLError):
    """As pynvml's."""


class NVMLError_NotFound(NVMLError):
    """As pynvml's."""


class NVMLError_NotSupported(NVMLError):
    """As pynvml's."""


class Nvml:
    """NVML's answers for one GPU; an answer that is an error is raised."""

    NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 1, 0
    NVMLError, NVMLError_GpuIsLost = NVMLError, NVMLError_GpuIsLost
    NVMLError_NotFound, NVMLError_NotSupported = NVMLError_NotFound, NVMLError_NotSupported

    def __init__(self) -> None:
        self.reasons: int | NVMLError = 0
        self.clock = 1980
        self.celsius, self.milliwatts, self.limit = 40, 131_060, 700_000
        self.pids: set[int] = set()
        self.used: dict[int, int] | NVMLError = NVMLError_NotFound()
        self.asked_since_us = 0
        self.starts = True
        self.now_sec = NOW_SEC

    def nvmlInit(self) -> None:
        if not self.starts:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise NVMLError_NotFound
        return uuid

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _gpu: str) -> int:
        return self._told(self.reasons)

    def nvmlDeviceGetClockInfo(self, _gpu: str, _kind: int) -> int:
        return self.clock

    def nvmlDeviceGetMaxClockInfo(self, _gpu: str, _kind: int) -> int:
        return 1980

    def nvmlDeviceGetTemperature(self, _gpu: str, _sensor: int) -> int:
        return self.celsius

    def nvmlDeviceGetPowerUsage(self, _gpu: str) -> int:
        return self.milliwatts

    def nvmlDeviceGetEnforcedPowerLimit(self, _gpu: str) -> int:
        return self.limit

    def nvmlDeviceGetPowerManagementDefaultLimit(self, _gpu: str) -> int:
        return 700_000

    def nvmlDeviceGetComputeRunningProcesses(self, _gpu: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetProcessUtilization(self, _gpu: str, since_us: int) -> list[SimpleNamespace]:
        self.asked_since_us = since_us
        return [SimpleNamespace(pid=pid, smUtil=used) for pid, used in self._told(self.used).items()]

    @staticmethod
    def _told(answer: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(gpu_meter, "time", SimpleNamespace(time=lambda: nvml.now_sec))
    return nvml


@pytest.fixture
def meter(nvml: Nvml) -> GpuMeter:
    """Of a process that has made its context, in a container where NVML knows it by another number."""
    meter = GpuMeter(UUID)
    nvml.pids = {OURS}
    return meter


@pytest.mark.parametrize("reasons", [0, IDLE, POWER_CAP])
def test_a_gpu_at_its_own_clock_is_quiet_also_at_the_limit_of_its_own_power(
    nvml: Nvml, meter: GpuMeter, reasons: int
) -> None:
    nvml.reasons, nvml.clock = reasons, 1400
    assert meter.read_load() == AcceleratorLoad(0.0)


@pytest.mark.parametrize(
    ("reasons", "cause"),
    [
        (HOT, "heat"),
        (HARDWARE | HOT_HARDWARE, "heat"),
        (HARDWARE | BRAKE, "its power supply"),
        (HARDWARE, "heat or its power supply"),
    ],
)
def test_a_gpu_that_is_throttled_tells_why_and_how_much(
    nvml: Nvml, meter: GpuMeter, reasons: int, cause: str
) -> None:
    nvml.reasons, nvml.clock, nvml.celsius, nvml.milliwatts = reasons, 990, 87, 412_300
    load = meter.read_load()
    assert load == AcceleratorLoad(0.5, (f"{cause} slowed the GPU down (990 of 1980 MHz, 87 °C, 412 W)",))
    assert is_disturbed(load.share)


def test_a_gpu_that_loses_little_of_its_clock_keeps_its_times(nvml: Nvml, meter: GpuMeter) -> None:
    nvml.reasons, nvml.clock = HOT, 1950
    assert not is_disturbed(meter.read_load().share)


def test_another_process_that_computes_disturbs(nvml: Nvml, meter: GpuMeter) -> None:
    meter.read_load()
    nvml.now_sec += 60
    nvml.pids, nvml.used = {OURS, THEIRS}, {OURS: 60, THEIRS: 30}
    assert meter.read_load() == AcceleratorLoad(0.3, ("other processes used 30% of the GPU",))
    assert nvml.asked_since_us == (nvml.now_sec - gpu_meter.RECENT_SEC) * 1e6


def test_the_session_before_this_one_does_not_disturb_it(nvml: Nvml, meter: GpuMeter) -> None:
    nvml.now_sec += 0.1
    meter.read_load()
    assert nvml.asked_since_us == NOW_SEC * 1e6


def test_another_process_that_only_holds_memory_does_not(nvml: Nvml, meter: GpuMeter) -> None:
    nvml.pids, nvml.used = {OURS, THEIRS}, {OURS: 99, THEIRS: 0}
    assert meter.read_load() == AcceleratorLoad(0.0)


@pytest.mark.parametrize("pids", [{THEIRS}, set()])
def test_a_process_that_was_there_before_is_not_taken_for_this_one(nvml: Nvml, pids: set[int]) -> None:
    nvml.pids = {THEIRS}
    meter = GpuMeter(UUID)
    nvml.pids, nvml.used = {THEIRS, OURS}, {OURS: 90, THEIRS: 10}
    assert meter.read_load().share == pytest.approx(0.1)
    nvml.pids = pids | {OURS}
    assert meter.read_load().share == pytest.approx(0.1)


def test_who_is_who_is_known_by_number_outside_of_containers(nvml: Nvml) -> None:
    meter = GpuMeter(UUID)
    nvml.pids, nvml.used = {os.getpid(), THEIRS}, {os.getpid(): 50, THEIRS: 20}
    assert meter.read_load().share == pytest.approx(0.2)


def test_where_nobody_can_be_told_apart_no_process_is_blamed(nvml: Nvml) -> None:
    meter = GpuMeter(UUID)
    nvml.used = {OURS: 90}
    assert meter.read_load() == AcceleratorLoad(0.0)


def test_a_gpu_that_is_lost_gives_no_times(nvml: Nvml, meter: GpuMeter) -> None:
    nvml.reasons = NVMLError_GpuIsLost()
    assert meter.read_load() == AcceleratorLoad(1.0, ("the driver lost the GPU",))


def no_module(nvml: Nvml, patch: pytest.MonkeyPatch) -> str:
    patch.setitem(sys.modules, "pynvml", None)
    return UUID


def no_driver(nvml: Nvml, _patch: pytest.MonkeyPatch) -> str:
    nvml.starts = False
    return UUID


def no_such_gpu(_nvml: Nvml, _patch: pytest.MonkeyPatch) -> str:
    return ""


def no_answer(nvml: Nvml, _patch: pytest.MonkeyPatch) -> str:
    nvml.reasons = NVMLError_NotSupported()
    return UUID


@pytest.mark.parametrize("lacks", [no_module, no_driver, no_such_gpu, no_answer])
def test_without_nvml_nothing_is_known(
    nvml: Nvml, lacks: Callable[[Nvml, pytest.MonkeyPatch], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = GpuMeter(lacks(nvml, monkeypatch)).read_load()
    assert load == AcceleratorLoad(None)
    assert not is_disturbed(load.share)


def test_a_gpu_that_may_draw_less_than_usual_is_another_one(nvml: Nvml, meter: GpuMeter) -> None:
    assert meter.power_limit() == ""
    nvml.limit = 350_000
    assert meter.power_limit() == "+350W"


def test_what_slowed_a_gpu_down_is_told_with_the_host_and_with_the_bounds() -> None:
    words = "heat slowed the GPU down (990 of 1980 MHz, 87 °C, 412 W)"
    load = Load(16, 0.0, 0.0, 0.0, gpu_share=0.5, gpu_words=(words,))
    assert (load.disturbance_phrases(), load.share) == ([words], 0.5)
    told = Disturbance.of_all(
        [
            Disturbance(candidates=1, has_priority=False),
            Disturbance(candidates=1, upper_bounds=1, has_priority=False, gpu=words),
        ]
    )
    assert told.description == f"{words}; 1 of 2 times are certain, the others upper bounds"
