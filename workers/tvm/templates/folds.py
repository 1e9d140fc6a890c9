"""Reductions name a schedule rule of ours.

TVM's rules leave sums along rows, over leading axes and of windows to loops without vectors.
"""

from typing import Any

import tvm
import tvm_ffi
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.tirx import BufferStore, IterVar, Mul, PrimFunc, Var

FOLD, RULE, WIDTH = "mallorn_fold", "schedule_rule", "mallorn_width"
VECTORS = 4  # of a register tile: enough that a sum need not wait for the one before it


def folds(lanes: int) -> Any:
    """The pass that marks them in tensor functions without products; pools name a rule that CPUs lack."""

    def mark(mod: Any, _: Any) -> Any:
        marked = {var: _marked(function, lanes) for var, function in mod.functions.items()}
        return tvm.IRModule(marked, attrs=mod.attrs)

    return tvm.transform.module_pass(mark, opt_level=0, name="Folds")


def _marked(function: Any, lanes: int) -> Any:
    blocks = _collect(function.body, SBlock) if isinstance(function, PrimFunc) else []
    reducing = [block for block in blocks if any(map(_is_reduction, block.iter_vars))]
    if any(_multiplies(block) for block in reducing):
        return function
    fitting = [block for block in reducing if _fills(block, lanes)]
    if not fitting:
        return function
    schedule = Schedule(function, debug_mask="none")
    for block in fitting:
        found = schedule.get_sblock(block.name_hint)
        if RULE in block.annotations:
            schedule.unannotate(found, RULE)
        schedule.annotate(found, RULE, FOLD)
        schedule.annotate(found, WIDTH, lanes)
    return schedule.mod["main"]


def beside(block: Any) -> int:
    """The axis along which neighbours are read, of results if there are two."""
    written = {hash(region.source) for region in block.writes}
    loads = [load for load in _collect(block.body, TensorLoad) if hash(load.source) not in written]
    names = {hash(var) for load in loads[:1] for var in _collect(load.indices[-1], Var)}
    axes = [at for at, axis in enumerate(block.iter_vars) if hash(axis.var) in names]
    return axes[0] if axes else len(block.iter_vars) - 1


def _fills(block: Any, lanes: int) -> bool:
    """True if that axis can be cut in at least halves of vectors; TVM does better with prime lengths."""
    size = int(block.iter_vars[beside(block)].dom.extent)
    return any(size % factor == 0 for factor in range(max(2, lanes // 2), VECTORS * lanes + 1))


def _is_reduction(axis: Any) -> bool:
    return bool(axis.iter_type == IterVar.CommReduce)


def _multiplies(block: Any) -> bool:
    return any(
        isinstance(store.value, tvm.tirx.Add) and isinstance(store.value.b, Mul)
        for store in _collect(block.body, BufferStore)
    )


def _collect(root: Any, kind: type) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: found.append(node)), order="pre")
    return found
