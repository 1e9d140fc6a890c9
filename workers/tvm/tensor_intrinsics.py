"""Register the tensor intrinsics of one target, since importing all takes ten seconds."""

import importlib
import inspect
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Final

_PACKAGE: Final = "tvm.s_tir.tensor_intrin"
# Modules that register instructions and schedule rules that TVM lacks.
_OURS: Final = {
    "llvm": (
        "mallorn.graphc.quant.block_quantized_matmul_function",
        "mallorn.graphc.tasks.mark_reductions",
        "mallorn.graphc.tasks.mark_elementwise_rows",
        "mallorn.graphc.conv.fuse_pointwise_into_depthwise",
        "mallorn.graphc.quant.tile_instructions",
    ),
    "cuda": ("mallorn.graphc.matmul.tensor_core_instructions",),
    "x86": ("mallorn.graphc.quant.bf16_dot_products", "mallorn.graphc.quant.x86_int8_instructions"),
}
_OF_TENSOR_CORES: Final = ("mma_",)  # parts of names of CUDA's intrinsics
_BY_KIND: Final = {"cuda": "cuda", "rocm": "rocm", "metal": "metal", "hexagon": "hexagon"}
_BY_MACHINE: Final = {
    "x86_64": "x86",
    "amd64": "x86",
    "i686": "x86",
    "aarch64": "arm_cpu",
    "arm64": "arm_cpu",
    "armv7l": "arm_cpu",
    "riscv64": "riscv_cpu",
}


def load_intrinsics(target_kind: str, triple: str = "") -> None:
    """Register the intrinsics that schedules for a kind of target may use, and keep TVM
    from importing all others. Call this once per kind, before TuneContext and TVM's
    builders. For CPUs, `triple` names the target machine if it is not this one."""
    if _PACKAGE not in sys.modules:
        import tvm.s_tir

        package = ModuleType(_PACKAGE, "Tensor intrinsics, registered one target kind at a time.")
        package.__path__ = [str(Path(tvm.s_tir.__file__).parent / "tensor_intrin")]
        package.__package__ = _PACKAGE
        sys.modules[_PACKAGE] = package
        tvm.s_tir.tensor_intrin = package
    submodule = _BY_KIND.get(target_kind)
    if target_kind == "llvm":
        machine = triple.partition("-")[0] or platform.machine()
        submodule = _BY_MACHINE.get(machine.lower())
    stock = () if submodule is None else (f"{_PACKAGE}.{submodule}",)
    with _stacks_without_sources():
        for module in dict.fromkeys((*stock, *_OURS.get(target_kind, ()), *_OURS.get(submodule or "", ()))):
            importlib.import_module(module)


def load_intrinsics_of(trace: str) -> None:
    """Register CUDA's intrinsics if a trace names any, for callers without a target."""
    if any(name in trace for name in _OF_TENSOR_CORES):
        load_intrinsics("cuda")


@contextmanager
def _stacks_without_sources() -> Iterator[None]:
    """Make inspect.stack() read no source files here: TVM's parser needs only variables,
    and files take most of the time of registering CUDA's intrinsics."""
    real = inspect.stack
    inspect.stack = _stack
    try:
        yield
    finally:
        inspect.stack = real


def _stack(context: int = 1) -> list[inspect.FrameInfo]:  # noqa: ARG001 (as inspect.stack)
    frames: list[inspect.FrameInfo] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        frames.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return frames
