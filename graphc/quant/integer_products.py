"""Rewrite products of decoded bytes with constant weights as sums of products of the bytes."""

from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Any

import numpy as np
from tvm import relax

from graphc.conv import fuse_pointwise_into_depthwise, pad_conv_to_vectors
from graphc.core.graph import Graph
from graphc.core.graph_pass import Build, Pass
from graphc.core.graph_rewriting import (
    OUT_ELEMENTWISE_FUSABLE,
    convolution,
    known,
    mostly_whole,
    parsed,
    sizes_of,
)
from graphc.core.reporting_pass import Leave
from graphc.quant.int8_dot_products import OFFSET
from graphc.quant.int8_instructions import QUAD, needed_instruction
from graphc.quant.quantized_value import BYTES, QuantizedValue, quantized_value

NARROWEST = 4  # fewest lanes that are worth a vector


@dataclass(frozen=True)
class DepthwiseBytes:
    """The bytes before conversion, their zero point, and the vectors that channels fill."""

    data: Any
    zero: Any
    width: int


class Int8DepthwiseConv(Pass[DepthwiseBytes]):
    """Computes depthwise convolutions from bytes if their channels fill vectors, at least narrow ones."""

    name, match = "quant.vectorize_int8_depthwise", ("relax.nn.conv2d",)
    rules = (fuse_pointwise_into_depthwise.STRIPS,)

    def check(self, call: Any, g: Graph) -> DepthwiseBytes:
        if not pad_conv_to_vectors.fits(call):
            raise Leave("its channels are not last, or its weights are computed")
        channels = sizes_of(call)[-1]
        if not int(call.attrs.groups) == channels == sizes_of(call.args[0])[-1]:
            raise Leave("it is not depthwise")
        if (width := gcd(channels, g.lanes)) < NARROWEST:
            raise Leave(f"its channels fill no vectors of {NARROWEST}")
        value = call.args[0]
        data, zero = g.producer(value, "relax.astype"), np.zeros(())
        offset = None if data is None else g.producer(data.args[0], "relax.subtract")
        if offset is not None and g.is_constant(offset.args[1]) and offset.args[1].ty.ndim == 0:
            data, zero = g.producer(offset.args[0], "relax.astype"), g.array(offset.args[1])
        if data is None or data.args[0].ty.dtype not in BYTES:
            raise Leave("its data is no bytes")
        return DepthwiseBytes(data.args[0], zero, width)

    def rewrite(self, call: Any, facts: DepthwiseBytes, g: Graph) -> Any:
        sizes = pad_conv_to_vectors.sizes_of(call, facts.width)
        text = _function(sizes, str(facts.data.ty.dtype), facts.width)
        zero = relax.const(np.reshape(facts.zero, 1).astype("float32"))
        arguments = [facts.data, zero, call.args[1]]
        sums = g.call_function("taps", parsed(text), arguments, call.ty)
        # Subtract the zero point's share of the sums, which is the same everywhere: margins
        # hold it, too.
        weights = g.array(call.args[1])
        if not facts.zero:
            return sums
        zero_sums = weights.sum(axis=(0, 1, 2)) * float(facts.zero)
        return relax.op.subtract(sums, relax.const(zero_sums.astype("float32")))


def _function(sizes: Any, dtype: str, width: int) -> str:
    """Return a function that pads a float strip with zero points and sums over the window."""
    shape, names = pad_conv_to_vectors.shape, pad_conv_to_vectors.names
    axes = ["n", "i0", "i1", "c"]
    inside, place = pad_conv_to_vectors.inside(sizes)
    every = [*axes, "r0", "r1"]
    return f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({shape(sizes.data)}, "{dtype}"),
    z: T.Buffer((T.int64(1),), "float32"),
    w: T.Buffer({shape((*sizes.kernel, 1, sizes.data[-1]))}, "float32"),
    y: T.Buffer({shape(sizes.result)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
    p = T.sblock_alloc_buffer({shape(sizes.around)}, "float32")
    for {names(axes)} in T.grid{shape(sizes.around)}:
        with T.sblock("padded"):
            {names(axes, "v")} = T.axis.remap("SSSS", [{names(axes)}])
            p[{names(axes, "v")}] = T.if_then_else(
                {inside}, T.Cast("float32", x[vn, {place}, vc]), z[0]
            )
    for {names(every)} in T.grid{shape((*sizes.result, *sizes.kernel))}:
        with T.sblock("depthwise"):
            vn, vi0, vi1, vc, vr0, vr1 = T.axis.remap("SSSSRR", [{names(every)}])
            T.sblock_attr({{{fuse_pointwise_into_depthwise.strip_rule(width)}}})
            with T.init():
                y[vn, vi0, vi1, vc] = T.float32(0)
            y[vn, vi0, vi1, vc] = (
                y[vn, vi0, vi1, vc] + p[vn, {pad_conv_to_vectors.read(sizes)}, vc] * w[vr0, vr1, 0, vc]
            )
"""


_EXACT = 2**24 // (255 * OFFSET)  # products of bytes whose sum is exact in float32


@dataclass(frozen=True)
class IntegerProduct:
    """A multiplication, its decoded data, its weights as bytes, and the scale of its sums."""

    call: Any
    data: QuantizedValue
    weights: Any
    scale: Any

    @property
    def convolves(self) -> bool:
        return bool(self.call.op.name == "relax.nn.conv2d")

    def sums(self) -> Any:
        """Build the sums of integers and convert them to floats."""
        data = self.data.data
        if self.data.zero:
            wide = relax.op.astype(data, "int16")
            data = relax.op.subtract(wide, relax.const(np.array(self.data.zero, "int16")))
        if self.convolves and _real_taps(self.call, self.weights):
            numbers = relax.const(self.weights.astype("float32"))
            sums = convolution(self.call, relax.op.astype(data, "float32"), numbers)
        else:
            multiply = partial(convolution, self.call) if self.convolves else relax.op.matmul
            sums = relax.op.astype(multiply(data, relax.const(self.weights), out_dtype="int32"), "float32")
        return relax.op.multiply(sums, relax.const(self.scale))


def multiply(call: Any, g: Graph) -> Build:
    """Return a build of a byte product that the target computes well. Raises Leave."""
    data, weights = (quantized_value(arg, g) for arg in call.args)
    if data is None or weights is None:
        raise Leave("one of its factors is no decoded bytes")
    if not known(call):
        raise Leave("its sizes are known only when it runs")
    weight_bytes = _weights(weights)
    if weight_bytes is None or data.dtype not in BYTES or call.ty.dtype != "float32":
        raise Leave("its weights are computed, or its numbers are no bytes")
    convolves = call.op.name == "relax.nn.conv2d"
    if not data.same or (not weights.same and weights.axis % weight_bytes.ndim != (0 if convolves else 1)):
        raise Leave("its scales lie along an axis that it sums up")
    if not (_convolution_fits if convolves else _matmul_fits)(call, weight_bytes):
        raise Leave("its sizes fit neither the instruction nor vectors")
    scale = (data.scale * weights.scale).astype("float32")
    scale = scale.reshape(1, -1, 1, 1) if convolves and scale.ndim else scale
    return IntegerProduct(call, data, weight_bytes, scale).sums


def _weights(stored: QuantizedValue) -> Any | None:
    """Return constant weights minus their zero point, or None if they do not fit in int8."""
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
    is_onnx = (attrs.data_layout, attrs.kernel_layout) == ("NCHW", "OIHW")
    is_depthwise = int(attrs.groups) == sizes_of(call.args[0])[1] == weights.shape[0] > 1
    is_dense = int(attrs.groups) == 1 and _fills_vectors(weights.shape[0])
    rows = weights.shape[1] % QUAD == 0 or int(attrs.dilation[1]) == 1
    return bool(is_onnx and ((is_depthwise and weights.shape[1] == 1) or (is_dense and rows)))


def _fills_vectors(outputs: int) -> bool:
    """Return whether the outputs fill the instruction's vectors with little padding."""
    return mostly_whole(outputs, needed_instruction().lanes)


def _real_taps(call: Any, weights: Any) -> bool:
    """Return whether `Int8DepthwiseConv` may compute it: sums are exact in float32."""
    outputs, _, *window = weights.shape
    each = int(call.attrs.groups) == outputs and outputs % NARROWEST == 0
    return bool(each and np.prod(window) <= _EXACT)
