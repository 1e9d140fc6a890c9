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
from mallorn.kinds.cuda.device.cuda_errors import explain_cuda_error
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
