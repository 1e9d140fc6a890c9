"""NVIDIA's driver is asked about GPUs in forks, and its errors are told in words."""

import ctypes
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mallorn.core.errors import HostFault, InvalidTarget
from mallorn.kinds.cuda.device import nvidia_driver
from mallorn.kinds.cuda.device.nvidia_driver import choose_gpu, gpu_fault, visible_gpus
from mallorn.workers.device.device_kind import Accelerator
from tests.fixtures.fake_cuda import pointee

H100 = "NVIDIA H100 80GB HBM3"
MIG = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
UUID = bytes(range(16))
WORDS = "00010203-0405-0607-0809-0a0b0c0d0e0f"
OUT_OF_MEMORY, NO_DEVICE, LOST = 2, 100, 719


class Driver:
    """As ctypes loads the driver's library; what it is asked beyond these functions works."""

    def __init__(self, *names: str, **codes: int) -> None:
        self.names = names
        self.codes = codes
        self.loads = 0

    def __call__(self, library: str) -> "Driver":
        assert library == "libcuda.so.1"
        self.loads += 1
        return self

    def __getattr__(self, function: str) -> Any:
        return lambda *_arguments: self.codes.get(function, 0)

    def cuDeviceGetCount(self, count: Any) -> int:
        pointee(count).value = len(self.names)
        return 0

    def cuDeviceGet(self, device: Any, index: int) -> int:
        pointee(device).value = index
        return 0

    def cuDeviceGetName(self, name: Any, _size: int, device: ctypes.c_int) -> int:
        name.value = self.names[device.value].encode()
        return 0

    def cuDeviceGetUuid_v2(self, uuid: Any, _device: ctypes.c_int) -> int:
        pointee(uuid)[:] = UUID
        return 0

    def cuDeviceTotalMem_v2(self, memory: Any, _device: ctypes.c_int) -> int:
        pointee(memory).value = 80 << 30
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, _device: ctypes.c_int) -> int:
        pointee(value).value = {75: 9, 76: 0}[attribute]
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        pointee(version).value = 13020
        return 0

    def cuGetErrorString(self, code: int, words: Any) -> int:
        pointee(words).value = {OUT_OF_MEMORY: b"out of memory", LOST: b"unspecified launch failure"}.get(
            code
        )
        return 0


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the kernel tells the version of its module."""
    monkeypatch.setattr(nvidia_driver, "KERNEL_MODULE", tmp_path / "version")
    return tmp_path / "version"


def test_gpus_are_described_in_a_fork(module: Path) -> None:
    module.write_text("580.159.04\n")
    driver = Driver(H100, MIG)
    assert visible_gpus(driver) == [
        Accelerator(0, f"GPU-{WORDS}", H100, 80 << 30, "580.159.04", 90),
        Accelerator(1, f"MIG-{WORDS}", MIG, 80 << 30, "580.159.04", 90),
    ]
    assert driver.loads == 0


def test_a_driver_without_a_module_of_the_kernel_tells_its_version_of_cuda(module: Path) -> None:
    assert visible_gpus(Driver(H100))[0].driver == "CUDA-13.2"


def test_a_driver_may_have_no_gpu(module: Path) -> None:
    assert visible_gpus(Driver(cuInit=NO_DEVICE)) == []


def test_a_host_without_a_driver_says_so() -> None:
    def load(library: str) -> Any:
        raise OSError(f"{library}: cannot open shared object file")

    with pytest.raises(HostFault, match=r"NVIDIA's driver cannot be loaded: libcuda.so.1: cannot open"):
        visible_gpus(load)


@contextmanager
def limited(address_bytes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(resource, "getrlimit", lambda _limit: (address_bytes, address_bytes))
        patch.setattr(resource, "setrlimit", lambda _limit, _value: None)
        yield


def test_a_driver_that_has_too_little_address_space_names_the_limit(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        limited(8 << 30, monkeypatch),
        pytest.raises(HostFault, match=r"out of memory; .* 8 GiB of address space \(ulimit -Hv\) \(2\)"),
    ):
        visible_gpus(Driver(H100, cuInit=OUT_OF_MEMORY))


def test_the_limit_of_address_space_is_lifted_for_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: (8 << 30, 64 << 30)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    nvidia_driver.raise_address_space_limit()
    assert limits[resource.RLIMIT_AS] == (64 << 30, 64 << 30)


def test_a_gpu_that_gives_a_new_context_works() -> None:
    assert gpu_fault(Driver(H100)) == ""


@pytest.mark.parametrize("step", ["cuInit", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuCtxSynchronize"])
def test_a_gpu_that_gives_none_is_told_in_the_drivers_words(step: str) -> None:
    fault = gpu_fault(Driver(H100, **{step: LOST}))
    assert fault == "CUDA's driver does not work: unspecified launch failure (719)"


def test_a_driver_that_never_answers_ends_its_fork() -> None:
    def hang(_library: str) -> Any:
        signal.raise_signal(signal.SIGALRM)
        time.sleep(nvidia_driver.ANSWER_SEC)

    assert "SIGALRM" in gpu_fault(hang)


@pytest.mark.parametrize(("wanted", "index"), [("", 0), ("1", 1), ("GPU-b", 1)])
def test_a_gpu_is_chosen_by_index_or_uuid(wanted: str, index: int) -> None:
    gpus = [Accelerator(0, "GPU-a", H100, 1, "1", 90), Accelerator(1, "GPU-b", H100, 1, "1", 90)]
    assert choose_gpu(gpus, wanted) is gpus[index]


def test_a_host_without_a_visible_gpu_says_where_to_look() -> None:
    with pytest.raises(InvalidTarget, match="this host has no visible GPU") as caught:
        choose_gpu([], "0")
    assert "CUDA_VISIBLE_DEVICES" in caught.value.hint
