"""Convolutions whose outputs do not fill whole vectors get padding outputs with zero weights.

24 channels are one vector and a half: as 32 they take two instructions where vectors of eight take three.
"""

from importlib import import_module
from typing import Any

import numpy as np
import tvm
from tvm import relax

rewriting = import_module(f"{__package__}.rewriting" if __package__ else "rewriting")


def vectors(lanes: int = rewriting.LANES) -> Any:
    """The pass that pads if at most a third of the products are wasted."""

    def rewrite_all(builder: Any, graph: Any) -> Any:
        return rewriting.rewrite_known(graph, "relax.nn.conv2d", lambda call: _rewrite(builder, call, lanes))

    return rewriting.graph_pass("Vectors", rewrite_all)


def _rewrite(builder: Any, call: Any, lanes: int) -> Any:
    if not _fits(call, lanes):
        return call
    weights, outputs = call.args[1].value.numpy(), int(call.ty.shape[-1])
    filled = np.pad(weights, [(0, 0)] * 3 + [(0, rewriting.whole_vectors(outputs, lanes) - outputs)])
    source = call.args[0]
    data, sizes = rewriting.padded(source, rewriting.sizes_of(source), call.attrs.padding)
    strides = tuple(map(int, call.attrs.strides))
    function = _function(sizes, filled.shape, rewriting.sizes_of(call), strides)
    return relax.call_tir(builder.add_func(function, "whole_conv2d"), [data, relax.const(filled)], call.ty)


def _fits(call: Any, lanes: int) -> bool:
    plain = all(int(number) == 1 for number in (*call.attrs.dilation, call.attrs.groups))
    if not plain or not rewriting.channels_last(call) or call.ty.dtype != "float32":
        return False
    outputs = int(call.ty.shape[-1])
    return bool(outputs > lanes and outputs % lanes and rewriting.mostly_whole(outputs, lanes))


def _function(
    data: tuple[int, ...], weights: tuple[int, ...], result: tuple[int, ...], strides: tuple[int, ...]
) -> Any:
    """Sums all outputs in a buffer and copies the wanted ones."""
    batch, height, width, _ = result
    high, wide, inputs, outputs = weights
    down, across = strides
    return tvm.script.from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({_sizes(*data)}, "float32"),
    w: T.Buffer({_sizes(*weights)}, "float32"),
    y: T.Buffer({_sizes(*result)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    z = T.sblock_alloc_buffer({_sizes(batch, height, width, outputs)}, "float32")
    for n, i, j, o, r, s, c in T.grid{_sizes(batch, height, width, outputs, high, wide, inputs)}:
        with T.sblock("sums"):
            vn, vi, vj, vo, vr, vs, vc = T.axis.remap("SSSSRRR", [n, i, j, o, r, s, c])
            with T.init():
                z[vn, vi, vj, vo] = T.float32(0)
            z[vn, vi, vj, vo] = (
                z[vn, vi, vj, vo] + x[vn, vi * {down} + vr, vj * {across} + vs, vc] * w[vr, vs, vc, vo]
            )
    for n, i, j, o in T.grid{_sizes(*result)}:
        with T.sblock("taken"):
            vn, vi, vj, vo = T.axis.remap("SSSS", [n, i, j, o])
            y[vn, vi, vj, vo] = z[vn, vi, vj, vo]
""")


def _sizes(*sizes: int) -> str:
    return f"({rewriting.numbers(sizes)})"
