"""Compute the resources that CUDA kernels use, from ptxas's output and launch sizes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tvm.ir import Call
from tvm.ir.instrument import pass_instrument
from tvm.tirx import IntImm

from mallorn.core.errors import InvalidRequest
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.graphc.export.code_generation import compile_to_library
from mallorn.kinds.cuda import compute_capability as cuda
from mallorn.kinds.cuda.compiler.compile_cuda import DeviceCode, collect_device_code

# After this pass the host's code contains a call for each kernel.
LAUNCHES_KNOWN: Final = "tirx.SplitHostDevice"
_LAUNCH: Final = "tirx.call_ffi_kernel"
_DYNAMIC_SHARED: Final = "tirx.use_dyn_shared_memory"


class CannotLaunch(InvalidRequest):
    """A kernel needs more registers, threads or shared memory than one multiprocessor has."""


@dataclass(frozen=True, slots=True)
class KernelFigures:
    """Resources of a kernel, and how many of its thread blocks fit on a multiprocessor."""

    name: str
    registers: int  # per thread
    stack_bytes: int  # per thread
    spill_bytes: int  # stored and loaded per thread because of too few registers
    static_shared_bytes: int  # per block
    dynamic_shared_bytes: int
    threads: int  # per block
    blocks: int  # of the launch; 0 if it depends on a size known only at run time
    blocks_per_sm: int  # 0: the kernel cannot launch
    warps_per_sm: int

    @property
    def shared_bytes(self) -> int:
        return self.static_shared_bytes + self.dynamic_shared_bytes


@pass_instrument
class LaunchWatch:
    """TVM pass instrument that records kernels' grid, block and shared-memory sizes."""

    def __init__(self) -> None:
        self.launches: dict[str, dict[str, int]] = {}

    def run_after_pass(self, module: Any, info: Any) -> None:
        if str(info.name) != LAUNCHES_KNOWN:
            return
        for function in module.functions.values():
            for call in collect_nodes(function.body, Call):
                if getattr(call.op, "name", "") == _LAUNCH:
                    names = [str(name) for name in call.attrs["launch_params"]]
                    sizes = call.args[len(call.args) - len(names) :]
                    values = (int(size) if isinstance(size, IntImm) else 0 for size in sizes)
                    self.launches[str(call.args[0].value)] = dict(zip(names, values, strict=True))


@dataclass(frozen=True, slots=True)
class CudaLibrary:
    library: Any
    codes: Sequence[DeviceCode]
    kernels: Sequence[KernelFigures]


def compile_for_cuda(
    module: Any, target: Any, instruments: Sequence[Any] = (), **options: Any
) -> CudaLibrary:
    """Compile tensor functions for CUDA. Raises KernelRefused, CannotLaunch, HostFault."""
    watch, arch = LaunchWatch(), str(target.attrs["arch"])
    with collect_device_code(target) as collected:
        library = compile_to_library(module, target, [*instruments, watch], **options)
    kernels = combine_kernel_resources(collected.codes, watch.launches, arch)
    check_launch(kernels, arch)
    return CudaLibrary(library, collected.codes, kernels)


def combine_kernel_resources(
    codes: Sequence[DeviceCode], launches: Mapping[str, Mapping[str, int]], arch: str
) -> list[KernelFigures]:
    """Combine the resources that ptxas prints for each kernel with its launch sizes."""
    gpu = cuda.capability(arch)
    figures_of = {name: figures for code in codes for name, figures in read_ptxas(code.log).items()}
    kernels = []
    for name, figures in figures_of.items():
        launch = launches.get(name, {})
        threads = prod(size for axis, size in launch.items() if axis.startswith("threadIdx"))
        registers, static = figures.get("registers", 0), figures.get("bytes smem", 0)
        dynamic = launch.get(_DYNAMIC_SHARED, 0)
        fits = gpu.can_share(static, dynamic)
        resident = gpu.resident_blocks(threads, registers, static + dynamic) if fits else 0
        kernels.append(
            KernelFigures(
                name=name,
                registers=registers,
                stack_bytes=figures.get("bytes stack frame", 0),
                spill_bytes=figures.get("bytes spill stores", 0) + figures.get("bytes spill loads", 0),
                static_shared_bytes=static,
                dynamic_shared_bytes=dynamic,
                threads=threads,
                blocks=prod(size for axis, size in launch.items() if axis.startswith("blockIdx")),
                blocks_per_sm=resident,
                warps_per_sm=resident * -(-threads // cuda.WARP_SIZE),
            )
        )
    return kernels


def read_ptxas(log: str) -> dict[str, dict[str, int]]:
    """Parse the output of `ptxas -v` to numbers by kernel and unit."""
    figures: dict[str, dict[str, int]] = {}
    entry = function = ""
    for line in log.splitlines():
        words = line.rpartition(" : ")[2].strip()
        if words.startswith("Compiling entry function '"):
            entry = function = words.split("'")[1]
            figures[entry] = {}
        elif words.startswith("Function properties for "):
            function = words.removeprefix("Function properties for ")
        elif entry and (words.startswith("Used ") or (function == entry and "bytes stack frame" in words)):
            for part in words.split(", "):
                number, _, unit = part.removeprefix("Used ").removeprefix("used ").partition(" ")
                if number.isdecimal():
                    figures[entry][unit] = int(number)
    return figures


def check_launch(kernels: Sequence[KernelFigures], arch: str) -> None:
    """Raise CannotLaunch for the first kernel whose blocks do not fit on a multiprocessor."""
    gpu = cuda.capability(arch)
    for kernel in kernels:
        if not kernel.blocks_per_sm:
            raise CannotLaunch(
                f"{kernel.name} cannot launch on {arch}: a block has {kernel.threads} threads of "
                f"{kernel.registers} registers, {kernel.static_shared_bytes} bytes of static shared memory "
                f"and {kernel.shared_bytes} bytes of shared memory in all; at most {cuda.THREADS_PER_BLOCK} "
                f"threads, {cuda.REGISTERS_PER_SM} registers, {cuda.SHARED_PER_BLOCK} bytes and "
                f"{gpu.shared_per_block_optin} bytes fit, and more than {cuda.SHARED_PER_BLOCK} bytes in all "
                f"only if {cuda.SHARED_PER_BLOCK} of them are dynamic"
            )
