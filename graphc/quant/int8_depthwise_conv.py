"""Depthwise convolutions of bytes: read as bytes, summed as real numbers, which hold such sums exactly.

No instruction adds narrow products of numbers that lie apart: those of one channel are as far from each other
as there are channels. Bytes made real once, in a strip that the nearest caches keep, are multiplied and added
by one instruction a tap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import tvm
from tvm import relax

from graphc.conv import fuse_pointwise_into_depthwise, pad_conv_to_vectors
from graphc.core import graph_rewriting

NARROWEST = 4  # lanes that are worth a vector
_BYTES = ("int8", "uint8")


@dataclass(frozen=True)
class Bytes:
    """What was made real, and what was taken from each."""

    data: Any
    zero: Any


def taps(lanes: int = graph_rewriting.LANES) -> Any:
    """The pass, for convolutions whose channels fill vectors, if narrow ones."""

    def rewrite_all(builder: Any, graph: Any) -> Any:
        values = relax.analysis.get_var2val(graph)

        def rewrite(call: Any) -> Any:
            data, width = _read(values, call.args[0]), _width(call, lanes)
            if data is None or not width:
                return call
            text = _function(pad_conv_to_vectors.sizes_of(call, width), str(data.data.ty.dtype), width)
            function = builder.add_func(graph_rewriting.parsed(text), "taps")
            zero = relax.const(np.reshape(data.zero, 1).astype("float32"))
            sums = relax.call_tir(function, [data.data, zero, call.args[1]], call.ty)
            return _less_zero(sums, data, call.args[1].value.numpy())

        return graph_rewriting.rewrite_known(graph, "relax.nn.conv2d", rewrite)

    return graph_rewriting.graph_pass("Taps", rewrite_all)


def _read(values: Mapping[Any, Any], value: Any) -> Bytes | None:
    real = graph_rewriting.call_of(values, value, "relax.astype")
    whole = None if real is None or real.ty.dtype != "float32" else real.args[0]
    less = graph_rewriting.call_of(values, whole, "relax.subtract")
    if less is not None and isinstance(less.args[1], tvm.ir.GenericConst) and less.args[1].ty.ndim == 0:
        wide = graph_rewriting.call_of(values, less.args[0], "relax.astype")
        data, zero = (None if wide is None else wide.args[0]), less.args[1].value.numpy()
    else:
        data, zero = whole, np.zeros(())
    return None if data is None or data.ty.dtype not in _BYTES else Bytes(data, zero)


def _width(call: Any, lanes: int) -> int:
    """Lanes that the channels fill; 0 where that is no vector, or this is no such convolution."""
    channels = graph_rewriting.sizes_of(call)[-1]
    every = int(call.attrs.groups) == channels == graph_rewriting.sizes_of(call.args[0])[-1]
    width = gcd(channels, lanes)
    return width if every and pad_conv_to_vectors.fits(call) and width >= NARROWEST else 0


def _less_zero(sums: Any, data: Bytes, weights: Any) -> Any:
    """The sums without what the zero point brought to them, everywhere the same: margins hold it, too."""
    if not data.zero:
        return sums
    brought = weights.sum(axis=(0, 1, 2)) * float(data.zero)
    return relax.op.subtract(sums, relax.const(brought.astype("float32")))


def _function(sizes: Any, dtype: str, width: int) -> str:
    """A strip of real numbers between margins of nothing, and the sums of it."""
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
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
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
