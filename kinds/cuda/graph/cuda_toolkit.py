"""Find CUDA's compiler and runtime in NVIDIA's wheels or on the system."""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

CUDART: Final = "libcudart.so.13"  # TVM's wheel links to this version


def cuda_folders() -> Iterator[Path]:
    """Yield folders with CUDA's compiler or runtime: wheels, CUDA_HOME, system toolkits."""
    wheels = (Path(entry, "nvidia", "cu13") for entry in sys.path)
    environment = (Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name))
    # Only folders with ptxas or cudart count: nvcc may be a mere script.
    on_path = (Path(nvcc).resolve().parents[1] for nvcc in [shutil.which("nvcc")] if nvcc)
    for folder in (*wheels, *environment, *on_path, *sorted(Path("/usr/local").glob("cuda*"))):
        if any(next(folder.glob(part), None) for part in ("bin/ptxas", f"lib*/{CUDART}")):
            yield folder


def find_in_toolkits(pattern: str) -> str | None:
    """Return the first file in CUDA's folders that matches a glob pattern, or None."""
    return next((str(path) for folder in cuda_folders() for path in folder.glob(pattern)), None)


def find_nvcc() -> str | None:
    return find_in_toolkits("bin/nvcc") or shutil.which("nvcc")


def load_cudart() -> str | None:
    """Load CUDA's runtime, which TVM's wheel links to; return its name or path, or None.
    The dynamic loader's search path takes precedence over toolkits."""
    for place in (CUDART, find_in_toolkits(f"lib*/{CUDART}")):
        with suppress(OSError):
            if place is not None:
                ctypes.CDLL(place, ctypes.RTLD_GLOBAL)
                return place
    return None


def prepare_stock_tvm() -> None:
    """Let TVM find cudart and compile with nvcc; call it before TVM is imported.

    TVM itself looks for cudart on the loader's path only, and needs another package for NVRTC.
    """
    load_cudart()
    if nvcc := find_nvcc():
        os.environ["PATH"] = os.pathsep.join([str(Path(nvcc).parent), os.environ.get("PATH", os.defpath)])
        os.environ.setdefault("TVM_CUDA_COMPILE_MODE", "nvcc")
