"""Schedules of CUDA programs: MetaSchedule's rules, two of them corrected, and DLight's.

- MetaSchedule's WMMA rule collects sums in dynamic shared memory. If their type differs from
  the operands', TVM's ``StorageRewrite`` reuses the operands' memory for them, and ``LowerIntrin``
  refuses the kernel ("tvm_access_ptr element type must match"). Here such sums use static
  shared memory.
- MetaSchedule's rule for ``mma.sync`` never applies after the WMMA rule, so it gets a design
  space of its own.

TVM's runtime opts kernels in to the larger limit of dynamic shared memory (docs/adr/0060).
"""

from functools import lru_cache
from math import prod
from typing import Any, Final

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import dlight
from tvm.s_tir.analysis import verify_gpu_code
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTilingTensorCore, ReuseType, ScheduleRule
from tvm.s_tir.meta_schedule.space_generator import PostOrderApply
from tvm.tirx.build import split_host_device_mods

from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.graphc.export.code_generation import compilation_context
from mallorn.kinds.cuda.compute_capability import AMPERE, capability
from mallorn.kinds.cuda.graph.dlight_int8_matmul import LowerableMatmul

DYNAMIC: Final = "shared.dyn"
MMA: Final = "mma_sync_m16n8k8"  # prefix of the names of the second space's instructions
LOWERED: Final = 64  # cached modules, as many as schedules are cached
_SHARED_LIMIT: Final = "max_shared_memory_per_block"
_WIDEST_GATHER: Final = 4
_WAIT: Final = "async_wait_inflight_count"  # copies to shared memory that may still be on their way
_STRUCTURE: Final = "SSSRRSRS"
_BINDS: Final = ("blockIdx.y", "blockIdx.x", "threadIdx.y")
_RULES: Final = (
    LowerableMatmul(),
    dlight.gpu.GEMV(),
    dlight.gpu.Reduction(),
    dlight.gpu.GeneralReduction(),
    dlight.gpu.Transpose(),
    dlight.gpu.LowBatchGEMV(),
    dlight.gpu.Fallback(),
)


def space_generators(target: Any) -> list[Any]:
    """Return space generators for a CUDA target: for WMMA and, if it has it, ``mma.sync``."""
    custom, wmma, mma, *simple_rules = ScheduleRule.create("cuda-tensorcore")
    groups = [
        {
            "init": f"wmma_fill_16x16x16_{sums}",
            "load_a": f"wmma_load_16x16x16_{operands}_a_shared_dyn",
            "load_b": f"wmma_load_16x16x16_{operands}_b{transposed}_shared_dyn",
            "compute": f"wmma_sync_16x16x16_{operands}{operands}{sums}{transposed}",
            "store": f"wmma_store_16x16x16_{sums}_shared",
        }
        for operands, sums in (("f16", "f32"), ("s8", "s32"))
        for transposed in ("", "_trans")
    ]
    wide_sums = MultiLevelTilingTensorCore(
        groups,
        _STRUCTURE,
        list(_BINDS),
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 3, 4, 8, 16],
        reuse_read=ReuseType("must", [4], DYNAMIC),
        reuse_write=ReuseType("must", [2], "shared"),
    )
    spaces = [PostOrderApply(sch_rules=[custom, wide_sums, wmma, *simple_rules])]
    if capability(target.attrs["arch"]).number >= AMPERE:
        spaces.append(PostOrderApply(sch_rules=[custom, mma, *simple_rules]))
    return spaces


def dlight_schedule(module: Any, target: Any) -> Any | None:
    """Return the schedule of DLight's first rule whose kernel can launch, or None. ``sm_90a``
    is passed as ``sm_90``, because DLight ignores tensor cores if there is a suffix."""
    plain = _with_attrs(target, arch=target.attrs["arch"].rstrip("af"))
    for rule in _RULES:
        try:
            with plain:
                result = rule.apply(module["main"], plain, False)
        except Exception:  # noqa: S112  # rules raise many types for unsupported programs
            continue
        schedule = result[0] if isinstance(result, list) else result
        if schedule is not None and can_launch(schedule.mod, target):
            return schedule
    return None


def with_opt_in_shared_memory(target: Any) -> Any:
    """Return the target with the larger shared-memory limit that kernels can opt in to."""
    return _with_attrs(target, **{_SHARED_LIMIT: capability(target.attrs["arch"]).shared_per_block_optin})


def _with_attrs(target: Any, **attributes: str | int) -> Any:
    return tvm.target.Target({"kind": "cuda", **target.attrs, **attributes})


@lru_cache(maxsize=LOWERED)
def lower_kernels(module: Any, target: Any) -> tuple[Any, ...] | None:
    """Return a scheduled module's kernels as lowered functions, or None if TVM does not
    lower it. Do not modify them, since they are cached: a candidate is lowered once, to
    check it and to compute its features."""
    pipeline, _, finalize = tvm.tirx.get_default_tir_pipeline(target)
    bind = tvm.tirx.transform.BindTarget(target.with_host(tvm.target.Target("llvm")))
    try:
        with compilation_context(target):
            _, kernels = split_host_device_mods(pipeline(bind(module)))
        return tuple(f for kernel in kernels.values() for f in finalize()(kernel).functions.values())
    except (RuntimeError, TypeError, ValueError):
        return None


def can_launch(module: Any, target: Any) -> bool:
    """Return whether TVM lowers a scheduled module and its kernels fit the CUDA target."""
    if threads_per_block(module) > target.attrs["max_threads_per_block"]:
        return False  # lowering takes longer than everything else
    functions = lower_kernels(module, target)
    if functions is None:
        return False
    limits = {"max_threads_per_block": target.attrs["max_threads_per_block"]}
    gpu = capability(target.attrs["arch"])
    for function in functions:
        kernel = _KernelLimits(function.body)
        static, dynamic = kernel.shared_bytes["shared"], kernel.shared_bytes[DYNAMIC]
        if static > target.attrs[_SHARED_LIMIT] or not gpu.can_share(static, dynamic):
            return False
        if kernel.is_refused_by_nvcc or not verify_gpu_code(function, limits):
            return False
    return True


class _KernelLimits:
    """A lowered kernel's shared memory, and whether TVM lowers it to text that is not CUDA.

    TVM writes a ``longlong4`` of eight numbers for the places of eight elements that do not
    follow each other, and an expression for the number of copies to wait for where it does
    not fold that to a constant.
    """

    def __init__(self, body: Any) -> None:
        self.shared_bytes = {"shared": 0, DYNAMIC: 0}
        self.is_refused_by_nvcc = False
        kinds = (tvm.tirx.AllocBuffer, tvm.tirx.AttrStmt, TensorLoad, tvm.tirx.BufferStore)
        tvm_ffi.structural_walk(body, (kinds, self._visit), order="pre")

    def _visit(self, node: Any) -> None:
        match node:
            case tvm.tirx.AllocBuffer():
                buffer = node.buffer
                if buffer.scope() in self.shared_bytes:
                    elements = prod(int(extent) for extent in buffer.shape)
                    self.shared_bytes[buffer.scope()] += elements * tvm.DataType(str(buffer.dtype)).itemsize
            case tvm.tirx.AttrStmt():
                if node.attr_key == _WAIT and not isinstance(node.value, tvm.tirx.IntImm):
                    self.is_refused_by_nvcc = True
            case _:
                for index in node.indices:
                    lanes = tvm.DataType(str(index.ty.dtype)).lanes
                    if lanes > _WIDEST_GATHER and not isinstance(index, tvm.tirx.Ramp):
                        self.is_refused_by_nvcc = True


def threads_per_block(module: Any) -> int:
    """Return the most threads that a block of a scheduled module's kernels has."""
    body = module["main"].body.block.body
    threads = []
    for kernel in body.seq if isinstance(body, tvm.tirx.SeqStmt) else [body]:
        extents: dict[str, int] = {}
        for loop in collect_nodes(kernel, tvm.tirx.For):
            if loop.thread_binding is not None and isinstance(loop.extent, tvm.tirx.IntImm):
                tag = str(loop.thread_binding.thread_tag)
                extents[tag] = max(extents.get(tag, 1), int(loop.extent))
        threads.append(prod(n for tag, n in extents.items() if tag.startswith("threadIdx")))
    return max(threads)
