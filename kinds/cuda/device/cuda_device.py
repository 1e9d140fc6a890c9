"""NVIDIA's GPUs in processes that run programs on them."""

import os
import re
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Final

from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import Target, parse_target
from mallorn.kinds.cuda.compute_capability import arch_of_gpu, runs_on
from mallorn.kinds.cuda.device import nvidia_driver
from mallorn.workers.device.device_kind import (
    Accelerator,
    AcceleratorMeter,
    CacheClock,
    DeviceKind,
    KernelError,
)
from mallorn.workers.sandbox.landlock import TRUNCATE, USE, WRITE_FILE

_NODES: Final = "nvidia[0-9]*"  # one for each GPU; the others are of all GPUs
#: What the driver opens in /dev, found by trial; all are needed.
_OPENED: Final = ("nvidiactl", "nvidia-uvm", _NODES)
_FACTS: Final = "/proc/driver/nvidia/gpus"
_VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
GPU_FAILED: Final = "the GPU or its driver failed"
TOO_SLOW: Final = "the driver ended its kernel, which took too long"
_TOO_LARGE: Final = "the GPU refuses the launch: too many threads, registers or bytes of shared memory"
# Names of the driver's errors (CUDA_ERROR_LAUNCH_FAILED) and the runtime's (cudaErrorAssert).
_NAMES: Final = {
    "the GPU has too little free memory for it": "outofmemory memoryallocation",
    _TOO_LARGE: "launchoutofresources invalidvalue invalidconfiguration",
    "its code does not load on this GPU": "nobinaryforgpu nokernelimagefordevice invalidimage "
    "invalidkernelimage invalidsource invalidptx unsupportedptxversion",
    "its kernel reads or writes where it must not": "illegaladdress misalignedaddress invalidaddressspace",
    "its kernel crashed": "launchfailed launchfailure illegalinstruction invalidpc hardwarestackerror assert",
    TOO_SLOW: "launchtimeout",
    GPU_FAILED: "eccuncorrectable nvlinkuncorrectable contained deviceunavailable devicesunavailable "
    "nodevice insufficientdriver notinitialized initializationerror systemnotready systemdrivermismatch "
    "externaldevice unknown",
}
_WORDS: Final = {name: words for words, names in _NAMES.items() for name in names.split()}
# TVM's message, without an error name, if the driver grants a kernel no more than 48 KiB.
_NO_SHARED_MEMORY: Final = "Failed to set the allowed dynamic shared memory size"


class CudaDevice(DeviceKind):
    drives_gpu = True
    fault_hint = "nvidia-smi -q"
    breaks_sessions = True

    def accelerators(self) -> Sequence[Accelerator]:
        return nvidia_driver.visible_gpus()

    def choose(self, accelerators: Sequence[Accelerator], name: str) -> Accelerator | None:
        return nvidia_driver.choose_gpu(accelerators, name)

    def first(self) -> Accelerator | None:
        return nvidia_driver.first_gpu()

    def show_only(self, accelerator: Accelerator) -> None:
        os.environ[_VISIBLE] = accelerator.uuid  # TVM's device 0, also in child processes

    def own_target(self) -> Target:
        gpu = nvidia_driver.first_gpu()
        return parse_target({"kind": "cuda", "arch": arch_of_gpu(gpu.capability)})

    def why_unsupported(self, target: Target) -> str:
        try:
            arch = str(parse_target(target.text).attrs["arch"])  # earlier versions stored tags
            capability = nvidia_driver.first_gpu().capability
        except InvalidTarget as error:
            return error.message
        return "" if runs_on(arch, capability) else f"the target is for {arch}, its GPU is sm_{capability}"

    def load_runtime(self) -> None:
        nvidia_driver.load_cuda_runtime()

    def meter(self, uuid: str) -> AcceleratorMeter | None:
        from mallorn.kinds.cuda.device.gpu_meter import GpuMeter

        return GpuMeter(uuid)

    def cache_clock(self) -> CacheClock | None:
        from mallorn.kinds.cuda.device.cuda_clock import CudaClock

        return CudaClock.for_first_gpu()

    def paths(self, uuid: str) -> Iterator[tuple[str, int]]:
        """Other GPUs' nodes are left out if the driver names the node of `uuid`."""
        own_node = _node(uuid)
        for pattern in _OPENED:
            is_node = own_node is not None and pattern == _NODES
            yield from ((path, USE) for path in glob(f"/dev/{own_node if is_node else pattern}"))
        yield f"/proc/{os.getpid()}/task", WRITE_FILE | TRUNCATE  # the driver names its threads there

    def fault(self) -> str:
        return nvidia_driver.gpu_fault()

    def explain_error(self, text: str) -> KernelError | None:
        return explain_cuda_error(text)

    def enable_graphs(self, enabled: int) -> None:
        from mallorn.kinds.cuda.device.cuda_graphs import enable_cuda_graphs

        enable_cuda_graphs(enabled)


def _node(uuid: str) -> str | None:
    """Return the name of a GPU's node in /dev; None if the driver does not name it."""
    for file in glob(f"{_FACTS}/*/information"):
        text = Path(file).read_text()
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        if uuid and uuid in text and minor:
            return f"nvidia{minor[1]}"
    return None


def explain_cuda_error(text: str) -> KernelError | None:
    """Explain the CUDA error that a TVM message names; return None if it names none.

    Only the device says that its GPU is at fault: a candidate can name any error. TVM raises
    `CUDA Runtime Error: cudaErrorX (n): text` (any call of the runtime, and errors of earlier
    kernels), `CUDALaunch Error: CUDA_ERROR_X` with the grid and perhaps the kernel's source,
    and `cuModuleLoadData(...) failed with error: CUDA_ERROR_X`.
    """
    words = _TOO_LARGE if _NO_SHARED_MEMORY in text else _words_of(text)
    if words is None:
        return None
    return KernelError(f"{words}: {remove_kernel_source(text)}", timed_out=words == TOO_SLOW)


def _words_of(text: str) -> str | None:
    names = "".join(c if c.isalnum() or c == "_" else " " for c in remove_kernel_source(text)).split()
    for name in names:
        short_name = name.removeprefix("CUDA_ERROR_").removeprefix("cudaError")
        if short_name != name and (words := _WORDS.get(short_name.replace("_", "").lower())):
            return words
    return None


def remove_kernel_source(text: str) -> str:
    """Remove the kernel's source from an error text; TVM appends it if a launch fails."""
    return text.partition("\n// func_name=")[0]
