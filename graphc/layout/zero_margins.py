"""The zeros that a tensor function of TVM's importer puts around its data."""

from typing import Any

from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.tirx import BufferStore, FloatImm, For, IntImm, Sub, Var


def zero_margins(function: Any) -> tuple[list[int], list[int]] | None:
    """How many it puts before and after each axis; None if it does anything else."""
    block: Any = _only_block(function)
    value = block.body.value if block is not None and isinstance(block.body, BufferStore) else None
    if not isinstance(value, Call) or getattr(value.op, "name", "") != "prim.if_then_else":
        return None
    _, load, zero = value.args
    if not isinstance(load, TensorLoad) or not isinstance(zero, FloatImm) or zero.value != 0:
        return None
    before = [_shift(index, axis.var) for index, axis in zip(load.indices, block.iter_vars, strict=True)]
    if None in before:
        return None
    sizes = zip(load.source.shape, block.iter_vars, before, strict=True)
    after = [int(axis.dom.extent) - int(size) - (shift or 0) for size, axis, shift in sizes]
    return ([shift or 0 for shift in before], after) if min(after) >= 0 else None


def _only_block(function: Any) -> Any | None:
    """The block inside the loops of a tensor function that consists of nothing else."""
    inner = function.body.block.body
    while isinstance(inner, For):
        inner = inner.body
    return inner.block if isinstance(inner, SBlockRealize) else None


def _shift(index: Any, var: Any) -> int | None:
    """How far an index lies before an axis; None if it is anything else."""
    if isinstance(index, Var):
        return 0 if index.same_as(var) else None
    plain = isinstance(index, Sub) and isinstance(index.b, IntImm) and index.a.same_as(var)
    return int(index.b) if plain else None
