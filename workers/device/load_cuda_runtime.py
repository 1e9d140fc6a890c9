"""Loads TVM's CUDA runtime into a process that loads TVM's runtime alone, where TVM leaves it out."""

import ctypes
import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from glob import glob
from pathlib import Path
from typing import Final

import tvm
import tvm_ffi

from mallorn.core.errors import HostFault
from workers.device.nvidia_driver import lift_address_limit

#: The version of CUDA's runtime that TVM's library is linked to.
CUDART: Final = "libcudart.so.13"
_CUDA: Final = Path(tvm.__file__).with_name("lib") / "libtvm_runtime_cuda.so"
_SYSTEM: Final = ("/usr/local/cuda/lib64", "/usr/local/cuda-13*/lib64")


def load_cuda_runtime() -> None:
    """Load CUDA's runtime and TVM's; in a fork only, as a context that they make does not survive one.

    Raises HostFault where one of them does not load, with the command that brings it.
    """
    if tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is not None:
        return
    lift_address_limit()
    for path in cudart_paths():
        with suppress(OSError):
            ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
            break
    else:
        raise HostFault(f"{CUDART} is not on this host", hint="pip install 'mallorn[cuda]'")
    try:
        ctypes.CDLL(str(_CUDA), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise HostFault(f"TVM's CUDA runtime does not load: {error}", hint="nvidia-smi") from None


def cudart_paths() -> Iterator[str]:
    """Yield where CUDA's runtime may lie: in wheels of NVIDIA, on the loader's path, and in /usr/local."""
    wheels = importlib.util.find_spec("nvidia")
    for folder in wheels.submodule_search_locations or () if wheels else ():
        yield from glob(f"{folder}/*/lib/{CUDART}")
    yield CUDART
    for folder in _SYSTEM:
        yield from glob(f"{folder}/{CUDART}")
