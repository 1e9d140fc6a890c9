"""Compile CUDA source to device code (a cubin), on machines with and without a GPU.

TVM compiles CUDA source only if its CUDA runtime library is loaded; otherwise it stores the
source in the library. The runtime needs cudart and the CUDA driver. If no driver is
installed, a stub is loaded whose functions fail. Nothing here uses a GPU.
"""

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any, Final

from mallorn.core.errors import HostFault, InvalidRequest, MallornError
from mallorn.core.installation import pip_install_command
from mallorn.core.os_errors import explain_os_error
from mallorn.kinds.cuda.device.nvidia_driver import DRIVER, load_tvms_cuda_library
from mallorn.kinds.cuda.graph.cuda_toolkit import CUDART, find_nvcc, load_cudart
from mallorn.workers.host.linker import INSTALL, find_c_compiler, raise_if_disk_unusable

STUB: Final = Path(__file__).with_name("cuda_driver_stub.c")
# The same as TVM's own, so that libraries compiled by stock TVM are as fast.
_OPTIONS: Final = (
    *("-O3", "-w", "--use_fast_math", "--expt-relaxed-constexpr", "--expt-extended-lambda"),
    *(f"-U__CUDA_NO_{kind}__" for kind in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_OPERATORS")),
    *(f"-U__CUDA_NO_{kind}__" for kind in ("BFLOAT16_CONVERSIONS", "BFLOAT162_OPERATORS")),
    *("-U__CUDA_NO_BFLOAT162_CONVERSIONS__", "--ptxas-options=-v,--register-usage-level=10"),
)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The tools of this host that compile CUDA kernels and load TVM's CUDA runtime."""

    nvcc: str | None
    cudart: str | None  # a path, or the name by which the loader finds it
    has_driver: bool
    missing: tuple[tuple[str, str], ...]  # missing tools, each with a command that installs it


class KernelRefused(InvalidRequest):
    """nvcc or ptxas does not compile a kernel."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """The compiled form of one CUDA source: its cubin, its PTX, and the output of ptxas."""

    cubin: bytes
    ptx: str
    log: str


@dataclass(slots=True)
class Collected:
    """The device code of all CUDA sources of a build, and the error if nvcc refused one."""

    codes: list[DeviceCode] = field(default_factory=list)
    error: MallornError | None = None


_collected: ContextVar[Collected | None] = ContextVar("collected", default=None)


def find_toolchain() -> Toolchain:
    """Look for nvcc, g++, cudart and the CUDA driver, and load the latter two."""
    nvcc, cudart = find_nvcc(), load_cudart()
    try:
        ctypes.CDLL(DRIVER)
        has_driver = True
    except OSError:
        has_driver = False
    needs = (
        (nvcc, "CUDA's compiler nvcc", pip_install_command("cuda")),
        (cudart, f"CUDA's runtime {CUDART}", pip_install_command("cuda")),
        (which("g++"), "a C++ compiler, which nvcc needs", "apt-get install g++"),
    )
    missing = tuple((tool, command) for path, tool, command in needs if not path)
    return Toolchain(nvcc, cudart, has_driver, missing)


@lru_cache(maxsize=1)
def load_cuda_compiler() -> None:
    """Load TVM's CUDA runtime library, and make TVM compile CUDA source with nvcc. Raises
    HostFault if a tool is missing, with the command that installs it."""
    toolchain = find_toolchain()
    nvcc = str(toolchain.nvcc)
    if toolchain.missing:
        tool, command = toolchain.missing[0]
        raise HostFault(f"this host cannot compile for CUDA: it lacks {tool}", hint=command)
    import tvm
    import tvm_ffi

    if not toolchain.has_driver:
        if (c_compiler := find_c_compiler()) is None:
            raise HostFault("this host cannot compile for CUDA: it lacks a C compiler", hint=INSTALL)
        with TemporaryDirectory(prefix="mallorn-cuda-") as folder:
            stub = str(Path(folder, DRIVER))
            _run([c_compiler, "-shared", "-fPIC", f"-Wl,-soname,{DRIVER}", "-o", stub, str(STUB)], folder)
            ctypes.CDLL(stub, ctypes.RTLD_GLOBAL)
    load_tvms_cuda_library()  # TVM could not load it when it was imported

    def compile_for_current_target(source: str) -> bytes:
        collected = _collected.get() or Collected()
        arch = str(tvm.target.Target.current(allow_none=False).attrs["arch"])
        try:
            collected.codes.append(compile_cuda(nvcc, source, arch))
        except MallornError as error:
            collected.error = error
            raise
        return collected.codes[-1].cubin

    tvm_ffi.register_global_func("tvm_callback_cuda_compile", compile_for_current_target, override=True)


def compile_cuda(nvcc: str, source: str, arch: str) -> DeviceCode:
    """Compile CUDA source for an `arch` like ``sm_90a``. Raises KernelRefused, HostFault."""
    with TemporaryDirectory(prefix="mallorn-cuda-") as folder:
        text, cubin = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
        text.write_text(source)
        options = ["--keep", f"--keep-dir={folder}", "-o", str(cubin), str(text)]
        log = _run([nvcc, "-cubin", f"-arch={arch}", *_OPTIONS, *options], folder)
        return DeviceCode(cubin.read_bytes(), cubin.with_suffix(".ptx").read_text(), log)


def _run(command: list[str], folder: str) -> str:
    """Run a compiler. Raises KernelRefused for a bad source, HostFault if it cannot run."""
    try:
        process = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, cwd=folder
        )
    except OSError as error:
        raise explain_os_error(error) or HostFault(f"cannot run {command[0]}: {error.strerror}") from error
    output = process.stdout.replace(f"{folder}/", "").strip()
    if process.returncode != 0:
        raise_if_disk_unusable(Path(folder))
        raise KernelRefused(f"{Path(command[0]).name} refused the kernel: {output}")
    return output


@contextmanager
def collect_device_code(target: Any) -> Iterator[Collected]:
    """Make nvcc compile CUDA kernels in this context and collect their device code; leave
    other targets alone. Raises KernelRefused, HostFault in place of RuntimeError."""
    collected = Collected()
    if target.kind.name != "cuda":
        yield collected
        return
    load_cuda_compiler()
    token = _collected.set(collected)
    try:
        with target:
            yield collected
    except RuntimeError as error:
        if collected.error is not None:
            raise collected.error from error
        raise
    finally:
        _collected.reset(token)
