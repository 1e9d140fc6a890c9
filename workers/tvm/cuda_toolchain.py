"""What this host has to compile CUDA kernels and to run them."""

import ctypes
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

from mallorn.core.install_command import install_line

CUDART: Final = "libcudart.so.13"  # TVM's wheel links to this version
DRIVER: Final = "libcuda.so.1"


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What this host has to compile CUDA kernels and to load TVM's CUDA runtime library."""

    nvcc: Path | None
    cudart: str | None  # a path, or the name by which the loader finds it
    has_driver: bool
    missing: tuple[tuple[str, str], ...]  # what compiling lacks, each with the command that installs it


def find_toolchain() -> Toolchain:
    """Look for nvcc, cudart and the driver: in NVIDIA's wheels first, then on the system."""
    folders = [*(Path(entry, "nvidia", "cu13") for entry in sys.path), Path("/usr/local/cuda")]
    compilers = [*(folder / "bin" / "nvcc" for folder in folders), *map(Path, filter(None, [which("nvcc")]))]
    nvcc = next((path for path in compilers if path.is_file()), None)
    libraries = (path for folder in folders for path in folder.glob(f"lib*/{CUDART}"))
    cudart = next(map(str, libraries), CUDART if _loads(CUDART) else None)
    needs = (
        (nvcc, "CUDA's compiler nvcc", install_line("cuda")),
        (cudart, f"CUDA's runtime {CUDART}", install_line("cuda")),
    )
    missing = tuple((what, command) for found, what, command in needs if not found)
    return Toolchain(nvcc, cudart, _loads(DRIVER), missing)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
