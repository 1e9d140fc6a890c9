"""Reductions name a schedule rule of ours.

TVM's rules leave sums along rows, over leading axes and of windows to loops without vectors.
"""

from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock, Schedule
from tvm.tirx import BufferStore, IterVar, Mul, PrimFunc

FOLD, RULE, WIDTH = "mallorn_fold", "schedule_rule", "mallorn_width"


def folds(lanes: int) -> Any:
    """The pass that marks them in tensor functions without products; pools name a rule that CPUs lack."""

    def mark(mod: Any, _: Any) -> Any:
        marked = {var: _marked(function, lanes) for var, function in mod.functions.items()}
        return tvm.IRModule(marked, attrs=mod.attrs)

    return tvm.transform.module_pass(mark, opt_level=0, name="Folds")


def _marked(function: Any, lanes: int) -> Any:
    blocks = _collect(function.body, SBlock) if isinstance(function, PrimFunc) else []
    reducing = [
        block for block in blocks if any(axis.iter_type == IterVar.CommReduce for axis in block.iter_vars)
    ]
    if not reducing or any(_multiplies(block) for block in reducing):
        return function
    schedule = Schedule(function, debug_mask="none")
    for block in reducing:
        found = schedule.get_sblock(block.name_hint)
        if RULE in block.annotations:
            schedule.unannotate(found, RULE)
        schedule.annotate(found, RULE, FOLD)
        schedule.annotate(found, WIDTH, lanes)
    return schedule.mod["main"]


def _multiplies(block: Any) -> bool:
    return any(
        isinstance(store.value, tvm.tirx.Add) and isinstance(store.value.b, Mul)
        for store in _collect(block.body, BufferStore)
    )


def _collect(root: Any, kind: type) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: found.append(node)), order="pre")
    return found
