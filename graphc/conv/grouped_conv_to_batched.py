"""Grouped convolutions get an axis of groups, which tiles of registers need.

TVM's own read the data at `output // outputs * channels`, which fits no tile.
"""

from functools import partial
from typing import Any

import numpy as np
from tvm import relax

from graphc.conv import pad_conv_to_vectors
from graphc.core import graph_rewriting

NAME, RESHAPE = "grouped_", "relax.reshape"


def groups(lanes: int = graph_rewriting.LANES) -> Any:
    """The pass, for convolutions of several groups that are not depthwise."""
    return graph_rewriting.call_pass(
        "Groups", dict.fromkeys(pad_conv_to_vectors.LAYOUTS, partial(_rewrite, lanes=lanes))
    )


def joined() -> Any:
    """The pass that keeps what joins the groups apart: alone it is a view, in another task it is a copy."""
    return graph_rewriting.graph_pass("Joined", _keep_apart)


def _keep_apart(builder: Any, graph: Any) -> Any:
    values = relax.analysis.get_var2val(graph)

    def rewrite(call: Any) -> Any:
        if not _grouped(values, call.args[0]):
            return call
        function = builder.add_func(_view(*map(graph_rewriting.sizes_of, (call.args[0], call))), "joined")
        return relax.call_tir(function, [call.args[0]], call.ty)

    return graph_rewriting.rewrite_known(graph, RESHAPE, rewrite)


def _grouped(values: Any, var: Any) -> bool:
    """True for what the pass above computes, and what was moved behind it."""
    call = values.get(var) if isinstance(var, relax.Var) else None
    if not isinstance(call, relax.Call) or call.op.name == RESHAPE:
        return False
    if call.op.name == "relax.call_tir":
        return str(call.args[0].name_hint).startswith(NAME)
    return bool(call.args) and _grouped(values, call.args[0])


def _view(groups: tuple[int, ...], whole: tuple[int, ...]) -> Any:
    axes = [f"i{at}" for at in range(len(whole))]
    *outer, last = (f"v{axis}" for axis in axes)
    source = ", ".join([*outer, f"{last} // {groups[-1]}", f"{last} % {groups[-1]}"])
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({pad_conv_to_vectors.shape(groups)}, "float32"),
    y: T.Buffer({pad_conv_to_vectors.shape(whole)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {", ".join(axes)} in T.grid{pad_conv_to_vectors.shape(whole)}:
        with T.sblock("joined"):
            {", ".join([*outer, last])} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{", ".join([*outer, last])}] = x[{source}]
""")


def _rewrite(builder: Any, call: Any, lanes: int) -> Any:
    if (
        not pad_conv_to_vectors.fits(call)
        or int(call.attrs.groups) == 1
        or int(call.args[1].ty.shape[-2]) == 1
    ):
        return call
    weights, count = call.args[1].value.numpy(), int(call.attrs.groups)
    outputs = weights.shape[-1] // count
    sizes = pad_conv_to_vectors.sizes_of(call, _whole(outputs, lanes))
    by_group = weights.reshape(*weights.shape[:-1], count, outputs)
    filled = np.pad(by_group, [(0, 0)] * weights.ndim + [(0, sizes.outputs - outputs)])
    name = f"{NAME}{call.op.name.rpartition('.')[2]}"
    function = builder.add_func(_function(sizes, count), name)
    result = relax.TensorType((*sizes.result[:-1], count, outputs), "float32")
    grouped = relax.call_tir(function, [call.args[0], relax.const(filled)], result)
    return relax.op.reshape(grouped, call.ty.shape)


def _whole(outputs: int, lanes: int) -> int:
    """Rounded up to vectors, or a part of one that is a power of two, where little is padding."""
    vector = min(lanes, 1 << (outputs - 1).bit_length())
    return (
        graph_rewriting.whole_vectors(outputs, vector)
        if graph_rewriting.mostly_whole(outputs, vector)
        else outputs
    )


def _function(sizes: Any, count: int) -> Any:
    """Sums all outputs of each group in a buffer and copies the wanted ones."""
    places = range(len(sizes.kernel))
    result = ["n", *(f"i{at}" for at in places), "g", "o"]
    summed = [*(f"r{at}" for at in places), "c"]
    channels, wanted = sizes.data[-1] // count, sizes.result[-1] // count
    grown = sizes.filled != sizes.data
    source = f"{'filled' if grown else 'x'}[vn, {pad_conv_to_vectors.read(sizes)}, vg * {channels} + vc]"
    sums = (*sizes.sums[:-1], count, sizes.outputs)
    names, shape = pad_conv_to_vectors.names, pad_conv_to_vectors.shape
    kinds = "S" * len(result) + "R" * len(summed)
    copied = (*sizes.result[:-1], count, wanted)
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({shape(sizes.data)}, "float32"),
    w: T.Buffer({shape((*sizes.kernel, channels, count, sizes.outputs))}, "float32"),
    y: T.Buffer({shape(copied)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
{pad_conv_to_vectors.filling(sizes) if grown else ""}
    z = T.sblock_alloc_buffer({shape(sums)}, "float32")
    for {names(result + summed)} in T.grid{shape((*sums, *sizes.kernel, channels))}:
        with T.sblock("sums"):
            {names(result + summed, "v")} = T.axis.remap("{kinds}", [{names(result + summed)}])
            with T.init():
                z[{names(result, "v")}] = T.float32(0)
            z[{names(result, "v")}] = (
                z[{names(result, "v")}] + {source} * w[{names([*summed, "g", "o"], "v")}]
            )
    for {names(result)} in T.grid{shape(copied)}:
        with T.sblock("taken"):
            {names(result, "v")} = T.axis.remap("{"S" * len(result)}", [{names(result)}])
            y[{names(result, "v")}] = z[{names(result, "v")}]
""")
