"""Register the tensor intrinsics of one target, since importing all takes ten seconds."""

import importlib
import platform
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from mallorn.graphc.core.graph_rewriting import stacks_without_sources

_PACKAGE: Final = "tvm.s_tir.tensor_intrin"
# Modules that register instructions and schedule rules that TVM lacks.
_OURS: Final = {
    "llvm": (
        "mallorn.graphc.quant.block_quantized_matmul_function",
        "mallorn.graphc.tasks.mark_tasks",
        "mallorn.graphc.conv.fuse_pointwise_into_depthwise",
        "mallorn.graphc.quant.tile_instructions",
    ),
    "cuda": ("mallorn.graphc.matmul.tensor_core_instructions",),
    "arm_cpu": (
        "mallorn.graphc.quant.arm_int8_instructions",
        "mallorn.graphc.quant.arm_fp16_instructions",
    ),
    "x86": ("mallorn.graphc.quant.dot_products", "mallorn.graphc.quant.x86_int8_instructions"),
}
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
    from importing all others. Call this once per kind, before ``TuneContext`` and TVM's
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
    with stacks_without_sources():
        for module in dict.fromkeys((*stock, *_OURS.get(target_kind, ()), *_OURS.get(submodule or "", ()))):
            importlib.import_module(module)


def load_intrinsics_of(trace: str) -> None:
    """Register CUDA's intrinsics if a trace names any, for callers without a target."""
    if "mma_" in trace:  # as in the names of all intrinsics of tensor cores
        load_intrinsics("cuda")
