"""NVIDIA's GPUs, through CUDA."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar, Final

from mallorn.core.errors import InvalidTarget
from mallorn.core.storable_json import TOLD
from mallorn.core.target_kind import TargetAttrs, TargetKind
from mallorn.kinds.cuda.compute_capability import (
    GPUS,
    REGISTERS_PER_BLOCK,
    SHARED_PER_BLOCK,
    THREADS_PER_BLOCK,
    WARP_SIZE,
    capability,
    is_obsolete,
)
from mallorn.kinds.cuda.graph.cuda_toolkit import cuda_folders

EXAMPLE: Final = '{"kind": "cuda", "arch": "sm_80"}'
TAGS: Final = "nvidia/"
# Limits of a kernel on every GPU that nvcc 13 compiles for.
_LIMITS: Final[TargetAttrs] = {
    "max_threads_per_block": THREADS_PER_BLOCK,
    "max_num_threads": THREADS_PER_BLOCK,
    "max_shared_memory_per_block": SHARED_PER_BLOCK,
    "registers_per_block": REGISTERS_PER_BLOCK,
    "thread_warp_size": WARP_SIZE,
}
_PACKAGE: Final = "mallorn.kinds.cuda"
_TIMES: Final = f"{_PACKAGE}.times"


class Cuda(TargetKind):
    """NVIDIA's GPUs. A target has an architecture, block limits and no tag."""

    name: ClassVar = "cuda"
    tvm_kinds: ClassVar = frozenset({"cuda"})
    parts: ClassVar = {
        "DeviceKind": f"{_PACKAGE}.device.cuda_device:CudaDevice",
        "CompilerKind": f"{_PACKAGE}.compiler.cuda_compiler:CudaCompiler",
        "BuilderKind": f"{_PACKAGE}.compiler.cuda_builder:CudaBuilder",
        "MachineKind": f"{_PACKAGE}.typical_gpu:CudaMachines",
        "RecipeKind": f"{_PACKAGE}.cuda_recipes:CudaRecipes",
    }
    names: ClassVar = {
        "lowered_features": {"kernels": f"{_PACKAGE}.compiler.cuda_kernel_view:describe_kernels"},
        "sketch_time": {  # by kind of sketch
            "MetaSchedule": f"{_TIMES}.metaschedule_tiles:stock_model",
            "other": f"{_TIMES}.sketch_model:UnknownKind",
            "tensor core product": f"{_TIMES}.products:TensorCoreProduct",
            "vector product": f"{_TIMES}.sums_and_moves:SumByThreads",
            "row reduction": f"{_TIMES}.sums_and_moves:RowReduction",
            "cuda core product": f"{_TIMES}.products:CudaCoreProduct",
            "mover": f"{_TIMES}.sums_and_moves:Mover",
            "window": f"{_TIMES}.sums_and_moves:Window",
            "short attention": f"{_TIMES}.products:ShortAttentionKernel",
        },
    }
    runs_on_cores: ClassVar = False
    drafts_candidates: ClassVar = False
    empties_cache: ClassVar = True
    cache_states: ClassVar = {
        **TargetKind.cache_states,
        "auto": "cold if an input has 0.75 of all bytes",
    }
    # Kernels inside models, too, are timed without their CUDA graphs.
    launch_facts: ClassVar = {"launch": "eager"}
    instruction_mark: ClassVar = "mma_"  # as in the names of all of tensor cores
    environment: ClassVar = ("CUDA_", "NVIDIA_", "GPU_", "NVCC_")
    packages: ClassVar = tuple(f"nvidia-cuda-{part}>=13,<14" for part in ("cccl", "nvcc", "runtime"))
    dlpack_device: ClassVar = "kDLCUDA"
    runtime_link_options: ClassVar = "-ltvm_runtime_cuda"
    rounds_per_device: ClassVar = 3
    # A session takes about as long to begin as several candidates run (docs/adr/0091).
    round_size: ClassVar = 32
    # Timings agree within 1 % after 20 ms, and the cost model reads lowered kernels (docs/adr/0091).
    default_options: ClassVar = {"cost_model": "kernel-time"}
    min_repeat_ms: ClassVar = 20
    example: ClassVar = EXAMPLE
    tag_prefix: ClassVar = TAGS

    def tool_folders(self) -> Iterator[Path]:
        return cuda_folders()

    def owns(self, attrs: TargetAttrs) -> bool:
        return True

    def complete(self, attrs: TargetAttrs) -> TargetAttrs:
        """Complete a target from its tag and architecture, but given attributes win."""
        completed: TargetAttrs = {**_LIMITS, **_attributes_of_tag(attrs.get("tag")), **attrs}
        completed.pop("tag", None)
        if "arch" not in completed:
            raise InvalidTarget(
                "a CUDA target needs an architecture; only a machine with a GPU knows `cuda`",
                hint=f"--target '{EXAMPLE}'   or   mallorn check --target cuda",
            )
        if is_obsolete(completed["arch"]) or not attrs.keys() >= _LIMITS.keys():
            capability(completed["arch"])
        return completed


def _attributes_of_tag(tag: str | None) -> TargetAttrs:
    """Return the architecture of the GPU that a TVM tag names. Raises InvalidTarget.

    TVM's L2 size is omitted, so that a GPU has the same target whichever way it is named.
    """
    if tag is None:
        return {}
    archs = {name: arch for arch, names in GPUS["names_by_arch"].items() for name in names.split()}
    name = tag.removeprefix(TAGS)
    if name not in archs:
        usable = [gpu for gpu, arch in archs.items() if not is_obsolete(arch)]
        similar = [gpu for gpu in usable if name in gpu] or get_close_matches(name[:TOLD], usable)
        examples = ", ".join(TAGS + gpu for gpu in similar[:3])
        raise InvalidTarget(
            f"TVM has no GPU tag {tag[:TOLD]!r}" + (f"; it has {examples}" if similar else ""),
            hint=f"--target '{EXAMPLE}'   (with the architecture of your GPU)",
        )
    return {"arch": archs[name]}
