"""Operators in forms that a change of layout passes through, so that nothing around them is transposed.

TVM's ConvertLayout stops at leaky ReLUs, at padding, and at constants of fewer axes than what they meet.
"""

from functools import partial
from typing import Any

from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Build, Pass
from graphc.core.graph_rewriting import convolution
from graphc.core.reporting_pass import Leave
from graphc.layout.zero_margins import zero_margins

LEAKY = "relax.nn.leakyrelu"
CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d")
_BINARY = ("add", "divide", "maximum", "minimum", "multiply", "subtract")
IMAGE_AXES = 4


class PrepareConvertLayout(Pass[Build]):
    """Writes leaky ReLUs as maxima, pads in convolutions, and gives constants all axes of images."""

    name = "layout.prepare_convert_layout"
    match = (LEAKY, *CONVOLUTIONS, *(f"relax.{name}" for name in _BINARY))
    dtype = ""

    def check(self, call: Any, g: Graph) -> Build:
        if operator_name(call) in CONVOLUTIONS:
            return _padding(call, g)
        if operator_name(call) != LEAKY:
            return _constant(call, g)
        if float(call.attrs.alpha) > 1:
            raise Leave("its slope is above one")
        return partial(_maximum, call)

    def rewrite(self, call: Any, facts: Build, g: Graph) -> Any:
        return facts()


def _maximum(call: Any) -> Any:
    slope = relax.const(float(call.attrs.alpha), call.ty.dtype)
    return relax.op.maximum(call.args[0], relax.op.multiply(call.args[0], slope))


def _constant(call: Any, g: Graph) -> Build:
    other = call.args[1]
    if not g.is_constant(other):
        raise Leave("its second operand is computed")
    if call.ty.ndim != IMAGE_AXES or not 0 < other.ty.ndim < IMAGE_AXES:
        raise Leave("it is of no image, or its constant has all axes or none")
    values = g.array(other)
    return partial(_with_all_axes, call, values.reshape((1,) * (IMAGE_AXES - values.ndim) + values.shape))


def _with_all_axes(call: Any, values: Any) -> Any:
    return getattr(relax.op, call.op.name.removeprefix("relax."))(call.args[0], relax.const(values))


def _padding(call: Any, g: Graph) -> Build:
    source = g.producer(call.args[0], "relax.call_tir")
    if source is None or call.attrs.data_layout not in ("NCW", "NCHW"):
        raise Leave("no tensor function is before it, or its layout is not ONNX's")
    margins = zero_margins(g.tensor_function(source))
    if margins is None or any(margins[0][:2]) or any(margins[1][:2]):
        raise Leave("what is before it does more than put zeros around images")
    own, added = map(int, call.attrs.padding), [*margins[0][2:], *margins[1][2:]]
    padding = [mine + more for mine, more in zip(own, added, strict=True)]
    data = source.args[1].fields[0]
    return partial(convolution, call, data, call.args[1], padding=padding)
