"""Products of decoded bytes with constant weights, as sums of products of the bytes."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph import Graph
from graphc.core.graph_pass import Build
from graphc.core.graph_rewriting import convolution, known, mostly_whole, sizes_of
from graphc.core.reporting_pass import Leave
from graphc.quant.int8_depthwise_conv import NARROWEST
from graphc.quant.int8_dot_products import OFFSET
from graphc.quant.int8_instructions import QUAD, needed_instruction
from graphc.quant.quantized_value import BYTES, QuantizedValue, quantized_value

_EXACT = 2**24 // (255 * OFFSET)  # products of bytes whose sums float32 holds


@dataclass(frozen=True)
class IntegerProduct:
    """A call that multiplies, what its data was decoded from, weights as bytes, and a sum's scale."""

    call: Any
    data: QuantizedValue
    weights: Any
    scale: Any

    @property
    def convolves(self) -> bool:
        return bool(self.call.op.name == "relax.nn.conv2d")

    def sums(self) -> Any:
        """The sums of integers, made real."""
        data = self.data.data
        if self.data.zero:
            wide = relax.op.astype(data, "int16")
            data = relax.op.subtract(wide, relax.const(np.array(self.data.zero, "int16")))
        if self.convolves and _real_taps(self.call, self.weights):
            numbers = relax.const(self.weights.astype("float32"))
            found = convolution(self.call, relax.op.astype(data, "float32"), numbers)
        else:
            multiply = partial(convolution, self.call) if self.convolves else relax.op.matmul
            found = relax.op.astype(multiply(data, relax.const(self.weights), out_dtype="int32"), "float32")
        return relax.op.multiply(found, relax.const(self.scale))


def multiply(call: Any, g: Graph) -> Build:
    """A product of bytes with constant weights, if an instruction or vectors can compute it."""
    data, weights = (quantized_value(arg, g) for arg in call.args)
    if data is None or weights is None:
        raise Leave("one of its factors is no decoded bytes")
    if not known(call):
        raise Leave("its sizes are known only when it runs")
    made = _weights(weights)
    if made is None or data.dtype not in BYTES or call.ty.dtype != "float32":
        raise Leave("its weights are computed, or its numbers are no bytes")
    convolves = call.op.name == "relax.nn.conv2d"
    if not data.same or (not weights.same and weights.axis % made.ndim != (0 if convolves else 1)):
        raise Leave("its scales lie along an axis that it sums up")
    if not (_convolution_fits if convolves else _matmul_fits)(call, made):
        raise Leave("its sizes fit neither the instruction nor vectors")
    scale = (data.scale * weights.scale).astype("float32")
    scale = scale.reshape(1, -1, 1, 1) if convolves and scale.ndim else scale
    return IntegerProduct(call, data, made, scale).sums


def _weights(stored: QuantizedValue) -> Any | None:
    """Constant weights less their zero point, if they are bytes then."""
    if not stored.constant or stored.dtype not in BYTES:
        return None
    zero = stored.zero.astype("int32")
    if zero.ndim:
        zero = zero.reshape([-1 if at == stored.axis else 1 for at in range(stored.data.ty.ndim)])
    values = stored.data.value.numpy().astype("int32") - zero
    fits = values.min(initial=0) >= -OFFSET and values.max(initial=0) < OFFSET
    return values.astype("int8") if fits else None


def _matmul_fits(call: Any, weights: Any) -> bool:
    return weights.ndim == 2 and call.args[0].ty.ndim >= 2 and _fills_vectors(weights.shape[1])


def _convolution_fits(call: Any, weights: Any) -> bool:
    attrs = call.attrs
    plain = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    depthwise = int(attrs.groups) == sizes_of(call.args[0])[1] == weights.shape[0] > 1
    whole = int(attrs.groups) == 1 and _fills_vectors(weights.shape[0])
    rows = weights.shape[1] % QUAD == 0 or int(attrs.dilation[1]) == 1
    return bool(plain and ((depthwise and weights.shape[1] == 1) or (whole and rows)))


def _fills_vectors(outputs: int) -> bool:
    """Whether the target's instruction sums up so many at once, with little waste."""
    return mostly_whole(outputs, needed_instruction().lanes)


def _real_taps(call: Any, weights: Any) -> bool:
    """Whether `taps` may sum up a depthwise convolution: float32 holds its sums exactly."""
    outputs, _, *window = weights.shape
    each = int(call.attrs.groups) == outputs and outputs % NARROWEST == 0
    return bool(each and np.prod(window) <= _EXACT)
