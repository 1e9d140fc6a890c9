"""Times on a GPU: by events, with an empty cache, and without waiting after each kernel of a model."""

from collections.abc import Callable
from typing import Any

import pytest

from mallorn.kinds.cuda.device import cuda_clock
from mallorn.kinds.cuda.device.cuda_clock import FLUSH_SHARE, CudaClock
from mallorn.kinds.cuda.device.cuda_device import CudaDevice
from mallorn.workers.device import model_kernel_times
from mallorn.workers.device.model_kernel_times import FEWEST_RUNS, HostClock, Kernels
from mallorn.workers.device.slice_timer import SliceTimer
from tests.fixtures.fake_cuda import FakeCuda, perf_counter_of

L2_BYTES = 50_000_000
KERNEL_SEC = 10e-6
INSTRUMENT_SEC = 8e-6  # of the host, for each call of an instrument in Python


@pytest.fixture
def cuda() -> FakeCuda:
    return FakeCuda()


class Library:
    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    def __getitem__(self, _function: str) -> Callable[..., None]:
        return lambda *_tensors: self._cuda.launch(KERNEL_SEC, host_sec=2e-6)


def cold_times(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, number: int, repeat: int) -> Any:
    monkeypatch.setattr(CudaClock, "for_first_gpu", lambda: CudaClock(cuda, L2_BYTES))
    timer = SliceTimer(on_cores=False, has_priority=False, kind=CudaDevice())
    return timer.time_cold_slices(Library(cuda), "main", "cuda", number, repeat)  # type: ignore[arg-type]


def test_a_run_with_an_empty_cache_counts_the_kernel_alone(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = cold_times(cuda, monkeypatch, number=20, repeat=3)
    assert [each.mean_sec for each in times.slices] == pytest.approx([KERNEL_SEC] * 3, rel=1e-3)
    assert [each.disturbed for each in times.slices] == [None] * 3
    assert cuda.fills.count(FLUSH_SHARE * L2_BYTES) == 60
    assert cuda.calls.count("cudaMalloc") == 1


def test_an_error_of_the_gpu_is_raised_in_the_words_of_tvm(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda.errors["cudaStreamSynchronize"] = 700
    with pytest.raises(RuntimeError, match=r"^CUDA Runtime Error: cudaErrorIllegalAddress \(700\)"):
        cold_times(cuda, monkeypatch, number=1, repeat=1)


class Machine:
    """A virtual machine that launches these kernels, with its instrument around each call."""

    def __init__(self, cuda: FakeCuda, kernels: list[str]) -> None:
        self._cuda, self._kernels = cuda, kernels

    def set_instrument(self, watch: Callable[..., int]) -> None:
        self._record_call = watch

    def run(self) -> None:
        for name in ("vm.builtin.alloc_storage", *self._kernels):
            for before in (True, False):
                self._cuda.host_sec += INSTRUMENT_SEC
                self._record_call(None, name, before, None)
                if before and not name.startswith("vm."):
                    self._cuda.launch(KERNEL_SEC, host_sec=4e-6)


def test_kernels_of_a_model_are_timed_with_one_wait_a_run(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cuda_clock, model_kernel_times):
        monkeypatch.setattr(module, "time", perf_counter_of(cuda))
    machine = Machine(cuda, ["dense", "conv2d_prepacked", "dense"])
    times = Kernels(machine.set_instrument, machine.run, CudaClock(cuda, L2_BYTES)).measure_times_us(
        seconds=0.0
    )
    runs, first_fill = FEWEST_RUNS + 1, 1
    assert cuda.calls.count("cudaStreamSynchronize") == runs + first_fill
    assert times == pytest.approx({"dense": 20.0, "conv2d": 10.0}, rel=0.01), "launches are not counted"


def test_on_a_cpu_the_device_is_awaited_at_each_mark() -> None:
    waits: list[str] = []
    machine = Machine(FakeCuda(), ["dense"])
    times = Kernels(
        machine.set_instrument, machine.run, HostClock(lambda: waits.append("sync"))
    ).measure_times_us(0.0)
    assert list(times) == ["dense"]
    assert len(waits) == 2 * (FEWEST_RUNS + 1)
