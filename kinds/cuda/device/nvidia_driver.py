"""Asks NVIDIA's driver, through ctypes, which GPUs this host has and whether a GPU still computes,
and loads the CUDA runtimes that TVM needs.

A device calls the driver only in short-lived forks: it forks a process for every session,
and no CUDA context survives a fork. Processes with threads run a new program instead.
"""

import ctypes
import json
import os
import resource
import signal
from collections.abc import Callable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import HostFault, InvalidTarget, MallornError
from mallorn.kinds.cuda.graph.cuda_toolkit import CUDART, load_cudart
from mallorn.kinds.cuda.kind import EXAMPLE
from mallorn.workers.device.detect_host import run_with_tvm
from mallorn.workers.device.device_kind import Accelerator
from mallorn.workers.device.forked_process import ask_in_fork

DRIVER: Final = "libcuda.so.1"
KERNEL_MODULE: Final = Path("/sys/module/nvidia/version")
ANSWER_SEC: Final = 120  # a driver whose GPU hangs may never answer
_NO_DEVICE: Final = 100  # CUDA_ERROR_NO_DEVICE
_MAJOR, _MINOR = 75, 76  # CUdevice_attribute of the two parts of the compute capability
_PROBE_BYTES: Final = 1 << 20
Load = Callable[[str], Any]  # ctypes.CDLL, or a fake of the driver in tests
#: Prints the first GPU as a JSON list, or as a JSON string the reason why there is none.
GPU_PROGRAM: Final = """
import json
from dataclasses import astuple
from mallorn.core.errors import MallornError
from mallorn.kinds.cuda.device.nvidia_driver import choose_gpu, visible_gpus
try:
    print(json.dumps(astuple(choose_gpu(visible_gpus(), ""))))
except MallornError as error:
    print(json.dumps(error.message))
"""


def raise_address_space_limit() -> None:
    """Raise the soft limit of address space to the hard one: the driver reserves many GiB."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard_limit, hard_limit))


def load_cuda_runtime() -> None:
    """Load CUDA's runtime and TVM's CUDA library. Call this only in a fork: the CUDA
    context that it creates does not survive forks. A process that loaded only TVM's runtime
    has neither. Raises HostFault, with the command to type, if either does not load."""
    import tvm_ffi

    if tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return
    raise_address_space_limit()
    if load_cudart() is None:
        raise HostFault(f"{CUDART} is not installed here", hint="pip install 'mallorn[cuda]'")
    try:
        load_tvms_cuda_library()
    except OSError as error:
        raise HostFault(f"TVM's CUDA runtime cannot be loaded: {error}", hint="nvidia-smi") from None


def load_tvms_cuda_library() -> None:
    """Load the library with TVM's CUDA functions. Raises OSError if that fails."""
    import tvm

    ctypes.CDLL(str(Path(tvm.__file__).with_name("lib") / "libtvm_runtime_cuda.so"), ctypes.RTLD_GLOBAL)


class CudaDriver:
    """Calls CUDA's driver API. SIGALRM ends this process if it still runs after ANSWER_SEC,
    because a call may hang. Raises HostFault if the driver is missing or a call fails."""

    def __init__(self, load: Load) -> None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(ANSWER_SEC)
        raise_address_space_limit()
        try:
            self._cuda = load(DRIVER)
        except OSError as error:
            raise HostFault(f"NVIDIA's driver cannot be loaded: {error}", hint="nvidia-smi") from None
        code = self._cuda.cuInit(0)
        self._count = ctypes.c_int(0)
        if code != _NO_DEVICE:
            self._check(code)
            self._check(self._cuda.cuDeviceGetCount(ctypes.byref(self._count)))

    def gpus(self) -> list[Accelerator]:
        cuda = self._cuda
        if KERNEL_MODULE.exists():
            driver = KERNEL_MODULE.read_text().strip()
        else:
            version = ctypes.c_int()
            self._check(cuda.cuDriverGetVersion(ctypes.byref(version)))
            driver = f"CUDA-{version.value // 1000}.{version.value % 1000 // 10}"

        gpus = []
        for index in range(self._count.value):
            device, memory = ctypes.c_int(), ctypes.c_size_t()
            name, uuid = ctypes.create_string_buffer(256), (ctypes.c_ubyte * 16)()
            self._check(cuda.cuDeviceGet(ctypes.byref(device), index))
            self._check(cuda.cuDeviceGetName(name, len(name), device))
            self._check(cuda.cuDeviceGetUuid_v2(ctypes.byref(uuid), device))
            self._check(cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device))
            words, digits = name.value.decode(errors="replace"), bytes(uuid).hex()
            kind = "MIG" if " MIG " in words else "GPU"  # the name of a MIG slice contains its profile
            parts = (kind, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            capability = 10 * self._attribute(_MAJOR, device) + self._attribute(_MINOR, device)
            gpus.append(Accelerator(index, "-".join(parts), words, memory.value, driver, capability))
        return gpus

    def probe_memory(self) -> None:
        cuda, device, context = self._cuda, ctypes.c_int(), ctypes.c_void_p()
        self._check(cuda.cuDeviceGet(ctypes.byref(device), 0))
        self._check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._check(cuda.cuCtxSetCurrent(context))
        address = ctypes.c_uint64()
        self._check(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(_PROBE_BYTES)))
        self._check(cuda.cuMemsetD8_v2(address, ctypes.c_ubyte(1), ctypes.c_size_t(_PROBE_BYTES)))
        self._check(cuda.cuCtxSynchronize())

    def _attribute(self, number: int, device: ctypes.c_int) -> int:
        value = ctypes.c_int()
        self._check(self._cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device))
        return value.value

    def _check(self, code: int) -> None:
        if not code:
            return
        words = ctypes.c_char_p()
        self._cuda.cuGetErrorString(code, ctypes.byref(words))
        reason = words.value.decode(errors="replace") if words.value else "unknown error"
        _, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
        if hard_limit != resource.RLIM_INFINITY:
            reason += f"; this process may have {hard_limit / 2**30:.0f} GiB of address space (ulimit -Hv)"
        raise HostFault(f"CUDA's driver does not work: {reason} ({code})", hint="nvidia-smi")


def visible_gpus(load: Load = ctypes.CDLL) -> list[Accelerator]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves visible to this process. Raises
    HostFault if there is no driver or it does not start."""
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as nvidia-smi counts
    return [Accelerator(*facts) for facts in ask_in_fork(lambda: list(map(astuple, CudaDriver(load).gpus())))]


def choose_gpu(gpus: Sequence[Accelerator], name: str) -> Accelerator:
    """Return the GPU whose index or UUID is `name`, or the first if `name` is empty. Raises
    InvalidTarget if there is none."""
    for gpu in gpus:
        if name in ("", str(gpu.index), gpu.uuid):
            return gpu
    visible = ", ".join(gpu.described() for gpu in gpus)
    raise InvalidTarget(
        f"this host has no GPU {name}; it has {visible}" if gpus else "this host has no visible GPU",
        hint="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES",
    )


def first_gpu() -> Accelerator:
    """Return the first visible GPU, as a child process finds it. Raises InvalidTarget
    without a GPU, Unavailable if the child does not answer."""
    answer = run_with_tvm(GPU_PROGRAM)
    report = "the process that asked CUDA's driver died"
    if answer.returncode == 0:
        report = json.loads(answer.stdout.splitlines()[-1])
    if isinstance(report, str):
        raise InvalidTarget(
            f"CUDA finds no GPU here: {report}",
            hint=f"mallorn check --target cuda   (or, for a GPU elsewhere,   --target '{EXAMPLE}')",
        )
    return Accelerator(*report)


def gpu_fault(load: Load = ctypes.CDLL) -> str:
    """Return why the GPU cannot provide a new context with writable memory, or nothing."""
    try:
        ask_in_fork(lambda: CudaDriver(load).probe_memory())
    except MallornError as error:  # also if the fork was ended after ANSWER_SEC
        return error.message
    return ""
