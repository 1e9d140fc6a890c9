"""Operators in forms that a change of layout passes through, so that nothing around them is transposed.

TVM's ConvertLayout stops at leaky ReLUs, at padding, and at constants of fewer axes than what they meet.
"""

from typing import Any

import tvm
from tvm import relax
from tvm.ir import Call, TensorLoad
from tvm.relax.dpl import is_op, rewrite_call, wildcard
from tvm.s_tir import SBlockRealize
from tvm.tirx import BufferStore, FloatImm, For, IntImm, Sub, Var

from graphc.core import graph_rewriting

_BINARY = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
_CONVOLUTIONS = ("conv1d", "conv2d")
IMAGE_AXES = 4


def passable() -> Any:
    """The pass that makes leaky ReLUs maxima, pads in convolutions, and gives constants all axes."""
    return graph_rewriting.graph_pass("Passable", _rewrite_all)


def _rewrite_all(builder: Any, graph: Any) -> Any:
    graph = graph_rewriting.rewrite_known(graph, "relax.nn.leakyrelu", _leaky)
    for name in _BINARY:
        both = is_op(f"relax.{name}")(wildcard(), wildcard())  # TVM wants them named where they may swap
        graph = rewrite_call(both, _with_all_axes, graph)
    functions, values = builder.get(), relax.analysis.get_var2val(graph)
    for name in _CONVOLUTIONS:
        graph = graph_rewriting.rewrite_known(
            graph, f"relax.nn.{name}", lambda call: _padding(functions, values, call)
        )
    return graph


def _leaky(call: Any) -> Any:
    data, slope = call.args[0], float(call.attrs.alpha)
    if slope > 1:
        return call
    return relax.op.maximum(data, relax.op.multiply(data, relax.const(slope, call.ty.dtype)))


def _with_all_axes(call: Any, _: Any) -> Any:
    """The same operator on a constant that has as many axes as its result."""
    data, other = call.args
    constant = graph_rewriting.known(call) and isinstance(other, tvm.ir.GenericConst)
    if not constant or call.ty.ndim != IMAGE_AXES or not 0 < other.ty.ndim < IMAGE_AXES:
        return call
    values = other.value.numpy()
    wide = values.reshape((1,) * (IMAGE_AXES - values.ndim) + values.shape)
    return getattr(relax.op, call.op.name.removeprefix("relax."))(data, relax.const(wide))


def _padding(functions: Any, values: Any, call: Any) -> Any:
    """The convolution of what was padded, with the padding as its own."""
    source = graph_rewriting.call_of(values, call.args[0], "relax.call_tir")
    if source is None or call.attrs.data_layout not in ("NCW", "NCHW"):
        return call
    margins = _margins(functions[source.args[0]])
    if margins is None or any(margins[0][:2]) or any(margins[1][:2]):
        return call
    own = list(map(int, call.attrs.padding))
    added = [mine + more for mine, more in zip(own, [*margins[0][2:], *margins[1][2:]], strict=True)]
    return graph_rewriting.convolution(call, source.args[1].fields[0], call.args[1], padding=added)


def _margins(function: Any) -> tuple[list[int], list[int]] | None:
    """The zeros that a tensor function of the importer puts before and after each axis, if that is all."""
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
