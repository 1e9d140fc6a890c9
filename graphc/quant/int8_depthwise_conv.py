"""Compute depthwise convolutions of bytes in float32, converting one strip at a time."""

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.conv import fuse_pointwise_into_depthwise, pad_conv_to_vectors
from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import OUT_ELEMENTWISE_FUSABLE, parse_tvmscript, sizes_of
from mallorn.graphc.quant.quantized_value import BYTES

NARROWEST = 4  # fewest lanes that are worth a vector


@dataclass(frozen=True)
class DepthwiseBytes:
    """A depthwise convolution's bytes, their zero point and a vector width of channels."""

    data: Any
    zero: Any
    width: int


class Int8DepthwiseConv(Pass[DepthwiseBytes]):
    """Computes depthwise convolutions of bytes if channels fill vectors of at least 4."""

    name, match = "int8_depthwise_conv", ("relax.nn.conv2d",)
    rules = (fuse_pointwise_into_depthwise.STRIPS,)

    def check(self, call: Any, g: Graph) -> DepthwiseBytes:
        if not pad_conv_to_vectors.is_supported(call):
            raise Leave("the channels are not last, or the weights are computed")
        channels = sizes_of(call)[-1]
        if not int(call.attrs.groups) == channels == sizes_of(call.args[0])[-1]:
            raise Leave("the convolution is not depthwise")
        if (width := gcd(channels, g.lanes)) < NARROWEST:
            raise Leave(f"the channels do not fill vectors of {NARROWEST}")
        data, zero = g.producer(call.args[0], "relax.astype"), np.zeros(())
        offset = None if data is None else g.producer(data.args[0], "relax.subtract")
        if offset is not None and g.is_constant(offset.args[1]) and offset.args[1].ty.ndim == 0:
            data, zero = g.producer(offset.args[0], "relax.astype"), g.array(offset.args[1])
        if data is None or data.args[0].ty.dtype not in BYTES:
            raise Leave("the data is not int8 or uint8")
        return DepthwiseBytes(data.args[0], zero, width)

    def rewrite(self, call: Any, facts: DepthwiseBytes, g: Graph) -> Any:
        shape, names = pad_conv_to_vectors.buffer_shape, pad_conv_to_vectors.join_names
        sizes = pad_conv_to_vectors.compute_padded_sizes(call, facts.width)
        axes = ["n", "i0", "i1", "c"]
        all_axes = [*axes, "r0", "r1"]
        condition, place = pad_conv_to_vectors.inside_condition(sizes)
        window = f"p[vn, {pad_conv_to_vectors.data_indices(sizes)}, vc]"
        # Pad a float strip with zero points and sum over the window.
        function = parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({shape(sizes.data)}, "{facts.data.ty.dtype}"),
    z: T.Buffer((T.int64(1),), "float32"),
    w: T.Buffer({shape((*sizes.kernel, 1, sizes.data[-1]))}, "float32"),
    y: T.Buffer({shape(sizes.result)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
    p = T.sblock_alloc_buffer({shape(sizes.conv_padded_data_shape)}, "float32")
    for {names(axes)} in T.grid{shape(sizes.conv_padded_data_shape)}:
        with T.sblock("padded"):
            {names(axes, "v")} = T.axis.remap("SSSS", [{names(axes)}])
            p[{names(axes, "v")}] = T.if_then_else(
                {condition}, T.Cast("float32", x[vn, {place}, vc]), z[0]
            )
    for {names(all_axes)} in T.grid{shape((*sizes.result, *sizes.kernel))}:
        with T.sblock("depthwise"):
            vn, vi0, vi1, vc, vr0, vr1 = T.axis.remap("SSSSRR", [{names(all_axes)}])
            T.sblock_attr({{{fuse_pointwise_into_depthwise.format_strip_attributes(facts.width)}}})
            with T.init():
                y[vn, vi0, vi1, vc] = T.float32(0)
            y[vn, vi0, vi1, vc] = (
                y[vn, vi0, vi1, vc] + {window} * w[vr0, vr1, 0, vc]
            )
""")
        zero = relax.const(np.reshape(facts.zero, 1).astype("float32"))
        sums = g.call_function("taps", function, [facts.data, zero, call.args[1]], call.ty)
        if not facts.zero:
            return sums
        # Subtract the zero point's share of the sums, which is the same even at margins.
        zero_sums = g.array(call.args[1]).sum(axis=(0, 1, 2)) * float(facts.zero)
        return relax.op.subtract(sums, relax.const(zero_sums.astype("float32")))
