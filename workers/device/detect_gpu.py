"""The first GPU that CUDA shows to this process, and the target that `cuda` stands for.

CUDA's driver is asked in a child: a process that has called `cuInit` cannot fork processes that use the GPU.
"""

import json
from typing import Final

from mallorn.core.compute_capability import arch_of_gpu
from mallorn.core.errors import InvalidTarget
from mallorn.core.targets import CUDA, CUDA_EXAMPLE, Target, parse_target
from workers.device.detect_host import ask_tvm

# The numbers are those of CUdevice_attribute: major and minor compute capability.
GPU_PROGRAM: Final = """
import ctypes, json

def ask(function, *arguments):
    if code := function(*arguments):
        name = ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(name))
        raise OSError(f"{function.__name__} ended with {(name.value or b'an unknown error').decode()}")

def attribute(number):
    value = ctypes.c_int()
    ask(driver.cuDeviceGetAttribute, ctypes.byref(value), number, 0)
    return value.value

try:
    driver = ctypes.CDLL("libcuda.so.1")
    ask(driver.cuInit, 0)
    found = {"capability": 10 * attribute(75) + attribute(76)}
except OSError as error:
    found = {"missing": str(error)}
print(json.dumps(found))
"""


def first_gpu() -> int:
    """Return the compute capability (10 * major + minor) of the first visible GPU.

    Raises InvalidTarget where CUDA finds none.
    """
    answer = ask_tvm(GPU_PROGRAM)
    found = {"missing": "the process that asked CUDA's driver died"}
    if answer.returncode == 0:
        found = json.loads(answer.stdout.splitlines()[-1])
    if "missing" in found:
        raise InvalidTarget(
            f"CUDA finds no GPU here: {found['missing']}",
            hint=f"mallorn check --target cuda   (or, for a GPU elsewhere,   --target '{CUDA_EXAMPLE}')",
        )
    return int(found["capability"])


def detect_gpu_target() -> Target:
    """Return the target of this machine's first GPU. Raises InvalidTarget where there is none."""
    return parse_target({"kind": CUDA, "arch": arch_of_gpu(first_gpu())})
