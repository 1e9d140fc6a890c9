"""Rewrite operators that block TVM's ConvertLayout pass, to avoid transposes around them.

ConvertLayout stops at leaky ReLUs, at padding and at constants with fewer axes than the
other operand. It also breaks the tensor functions that TVM's importer generates for Clip.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlockRealize
from tvm.tirx import BufferStore, FloatImm, For, IntImm, Sub, Var

from mallorn.graphc.core.graph_pass import Build, Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import copy_convolution

Bound = Callable[[Any, Any], Any]
BOUNDS: dict[str, Bound] = {"maximum": relax.op.maximum, "minimum": relax.op.minimum}


class ClipToMaxMin(Pass[Bound]):
    """Replaces tensor functions that TVM's importer makes of one-sided Clip by operators."""

    name, match = "clip_to_max_min", ("relax.call_tir",)
    dtype, any_size = "", True

    def check(self, call: Any, g: Graph) -> Bound:
        bound = BOUNDS.get(call.args[0].name_hint.rstrip("0123456789"))
        if bound is None:
            raise Leave("the function is neither a maximum nor a minimum")
        values = call.args[1].fields
        if len(values) != 2 or values[1].ty.ndim != 0:
            raise Leave("the bound is not a single number")
        return bound

    def rewrite(self, call: Any, facts: Bound, g: Graph) -> Any:
        return facts(*call.args[1].fields)


def zero_margins(function: Any) -> tuple[list[int], list[int]] | None:
    """Return the zeros that a function adds around each axis; None if it does more."""
    # The function must consist of loops around one block.
    inner = function.body.block.body
    while isinstance(inner, For):
        inner = inner.body
    block: Any = inner.block if isinstance(inner, SBlockRealize) else None
    value = block.body.value if block is not None and isinstance(block.body, BufferStore) else None
    if not isinstance(value, Call) or getattr(value.op, "name", "") != "prim.if_then_else":
        return None
    _, load, zero = value.args
    if not isinstance(load, TensorLoad) or not isinstance(zero, FloatImm) or zero.value != 0:
        return None
    low, high = [], []  # zeros before and after each axis
    for index, axis, size in zip(load.indices, block.iter_vars, load.source.shape, strict=True):
        shift = 0
        if isinstance(index, Sub) and isinstance(index.b, IntImm):
            index, shift = index.a, int(index.b)
        if not isinstance(index, Var) or not index.same_as(axis.var):
            return None
        low.append(shift)
        high.append(int(axis.dom.extent) - int(size) - shift)
    return (low, high) if min(high) >= 0 else None


LEAKY = "relax.nn.leakyrelu"
CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d")
_BINARY = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
IMAGE_AXES = 4


class PrepareConvertLayout(Pass[Build]):
    """Writes leaky ReLUs as maxima, folds pads into convolutions, adds axes to constants."""

    name = "prepare_convert_layout"
    match = (LEAKY, *CONVOLUTIONS, *(f"relax.{name}" for name in _BINARY))
    dtype = ""

    def check(self, call: Any, g: Graph) -> Build:
        data = call.args[0]
        if operator_name(call) == LEAKY:
            if float(call.attrs.alpha) > 1:
                raise Leave("the slope of the LeakyRelu is above one")
            slope = relax.const(float(call.attrs.alpha), call.ty.dtype)
            return lambda: relax.op.maximum(data, relax.op.multiply(data, slope))
        if operator_name(call) in CONVOLUTIONS:
            source = g.producer(data, "relax.call_tir")
            if source is None or call.attrs.data_layout not in ("NCW", "NCHW"):
                raise Leave("no tensor function computes the input, or the layout is not ONNX's")
            margins = zero_margins(g.tensor_function(source))
            if margins is None or any(margins[0][:2]) or any(margins[1][:2]):
                raise Leave("the function before the convolution does more than pad")
            zeros = [*margins[0][2:], *margins[1][2:]]
            padding = [own + extra for own, extra in zip(map(int, call.attrs.padding), zeros, strict=True)]
            return partial(copy_convolution, call, source.args[1].fields[0], call.args[1], padding=padding)
        operand = call.args[1]
        if not g.is_constant(operand):
            raise Leave("the second operand is computed")
        if call.ty.ndim != IMAGE_AXES or not 0 < operand.ty.ndim < IMAGE_AXES:
            raise Leave("the input is not an image, or the constant is not per channel")
        values = g.array(operand)
        constant = g.constant(values.reshape((1,) * (IMAGE_AXES - values.ndim) + values.shape))
        operator = getattr(relax.op, call.op.name.removeprefix("relax."))
        return lambda: operator(data, constant)

    def rewrite(self, call: Any, facts: Build, g: Graph) -> Any:
        return facts()
