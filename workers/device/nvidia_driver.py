"""Asks NVIDIA's driver which GPUs this host has and whether one still computes.

The driver is asked in forks: a CUDA context does not survive one, and a device forks a process for every
session. A process that may have threads or a context of its own asks in a child that begins anew.
"""

import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import astuple
from typing import Final

from mallorn.core.errors import InvalidTarget, MallornError
from mallorn.core.targets import CUDA_EXAMPLE
from workers.device.cuda_driver import CudaDriver, Gpu, Load
from workers.device.detect_host import ask_tvm
from workers.device.forked_process import ask_in_fork

#: Prints the first GPU, or why there is none.
GPU_PROGRAM: Final = """
import json
from dataclasses import astuple
from mallorn.core.errors import MallornError
from workers.device.nvidia_driver import choose_gpu, visible_gpus
try:
    print(json.dumps(astuple(choose_gpu(visible_gpus(), ""))))
except MallornError as error:
    print(json.dumps(error.message))
"""


def visible_gpus(load: Load = ctypes.CDLL) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves visible to this process.

    Raises HostFault without a driver, or with one that does not start.
    """
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi counts
    return [Gpu(*facts) for facts in ask_in_fork(lambda: list(map(astuple, CudaDriver(load).gpus())))]


def choose_gpu(gpus: Sequence[Gpu], wanted: str) -> Gpu:
    """Return the GPU with this index or UUID; the first one if `wanted` is empty. Raises InvalidTarget."""
    for gpu in gpus:
        if wanted in ("", str(gpu.index), gpu.uuid):
            return gpu
    visible = ", ".join(f"{gpu.index} ({gpu.uuid}, {gpu.name})" for gpu in gpus)
    raise InvalidTarget(
        f"this host has no GPU {wanted}; it has {visible}" if gpus else "this host has no visible GPU",
        hint="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    )


def first_gpu() -> Gpu:
    """Return the first visible GPU, which a child asks for. Raises InvalidTarget where there is none."""
    answer = ask_tvm(GPU_PROGRAM)
    told = "the process that asked CUDA's driver died"
    if answer.returncode == 0:
        told = json.loads(answer.stdout.splitlines()[-1])
    if isinstance(told, str):
        raise InvalidTarget(
            f"CUDA finds no GPU here: {told}",
            hint=f"mallorn check --target cuda   (or, for a GPU elsewhere,   --target '{CUDA_EXAMPLE}')",
        )
    return Gpu(*told)


def gpu_fault(load: Load = ctypes.CDLL) -> str:
    """Return why this process's GPU gives no new context whose memory can be written; empty: it does."""
    try:
        ask_in_fork(lambda: CudaDriver(load).use_memory())
    except MallornError as error:  # also of a fork that ended after ANSWER_SEC
        return error.message
    return ""
