"""Asks NVIDIA's driver which GPUs this host has and whether a GPU still computes.

A device calls the driver only in short-lived forks: it also forks a process for every
session, and a CUDA context does not survive a fork. Processes with threads run a new
program instead.
"""

import ctypes
import json
import os
from collections.abc import Sequence
from dataclasses import astuple
from typing import Final

from mallorn.core.errors import InvalidTarget, MallornError
from mallorn.core.targets import CUDA_EXAMPLE
from mallorn.workers.device.cuda_driver import CudaDriver, Gpu, Load
from mallorn.workers.device.detect_host import run_with_tvm
from mallorn.workers.device.forked_process import ask_in_fork

#: Prints the first GPU as a JSON list, or as a JSON string the reason why there is none.
GPU_PROGRAM: Final = """
import json
from dataclasses import astuple
from mallorn.core.errors import MallornError
from mallorn.workers.device.nvidia_driver import choose_gpu, visible_gpus
try:
    print(json.dumps(astuple(choose_gpu(visible_gpus(), ""))))
except MallornError as error:
    print(json.dumps(error.message))
"""


def visible_gpus(load: Load = ctypes.CDLL) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves visible to this process. Raises
    HostFault if there is no driver or it does not start."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi counts
    return [Gpu(*facts) for facts in ask_in_fork(lambda: list(map(astuple, CudaDriver(load).gpus())))]


def choose_gpu(gpus: Sequence[Gpu], name: str) -> Gpu:
    """Return the GPU whose index or UUID is `name`, or the first if `name` is empty. Raises
    InvalidTarget if there is none."""
    for gpu in gpus:
        if name in ("", str(gpu.index), gpu.uuid):
            return gpu
    visible = ", ".join(f"{gpu.index} ({gpu.uuid}, {gpu.name})" for gpu in gpus)
    raise InvalidTarget(
        f"this host has no GPU {name}; it has {visible}" if gpus else "this host has no visible GPU",
        hint="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    )


def first_gpu() -> Gpu:
    """Return the first visible GPU, as a child process finds it. Raises InvalidTarget
    without a GPU, Unavailable if the child does not answer."""
    answer = run_with_tvm(GPU_PROGRAM)
    report = "the process that asked CUDA's driver died"
    if answer.returncode == 0:
        report = json.loads(answer.stdout.splitlines()[-1])
    if isinstance(report, str):
        raise InvalidTarget(
            f"CUDA finds no GPU here: {report}",
            hint=f"mallorn check --target cuda   (or, for a GPU elsewhere,   --target '{CUDA_EXAMPLE}')",
        )
    return Gpu(*report)


def gpu_fault(load: Load = ctypes.CDLL) -> str:
    """Return why the GPU cannot provide a new context with writable memory, or nothing."""
    try:
        ask_in_fork(lambda: CudaDriver(load).probe_memory())
    except MallornError as error:  # also if the fork was ended after ANSWER_SEC
        return error.message
    return ""
