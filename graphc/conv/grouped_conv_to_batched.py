"""Compute grouped convolutions with an explicit axis of groups, which register tiles need.

TVM's own form indexes the data by `output // outputs * channels`, which cannot be tiled.
"""

from typing import Any

import numpy as np
from tvm import relax

from graphc.conv import pad_conv_to_vectors
from graphc.core import graph_rewriting
from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.reporting_pass import Leave

NAME, RESHAPE = "grouped_", "relax.reshape"


class GroupedConvToBatched(Pass[pad_conv_to_vectors.Sizes]):
    """Gives grouped convolutions that are not depthwise an explicit axis of groups."""

    name, match = "conv.grouped_to_batched", tuple(pad_conv_to_vectors.LAYOUTS)
    after = ("conv.winograd", "conv.fuse_pointwise_depthwise")

    def check(self, call: Any, g: Graph) -> pad_conv_to_vectors.Sizes:
        if not pad_conv_to_vectors.fits(call):
            raise Leave("its channels are not last, or its weights are computed")
        if int(call.attrs.groups) == 1:
            raise Leave("it has one group")
        if int(call.args[1].ty.shape[-2]) == 1:
            raise Leave("it is depthwise")
        outputs = int(call.ty.shape[-1]) // int(call.attrs.groups)
        return pad_conv_to_vectors.sizes_of(call, _whole(outputs, g.lanes))

    def rewrite(self, call: Any, facts: pad_conv_to_vectors.Sizes, g: Graph) -> Any:
        weights, count = g.array(call.args[1]), int(call.attrs.groups)
        by_group = weights.reshape(*weights.shape[:-1], count, -1)
        outputs = by_group.shape[-1]
        filled = np.pad(by_group, [(0, 0)] * weights.ndim + [(0, facts.outputs - outputs)])
        name = f"{NAME}{call.op.name.rpartition('.')[2]}"
        result = relax.TensorType((*facts.result[:-1], count, outputs), "float32")
        arguments = [call.args[0], relax.const(filled)]
        return relax.op.reshape(
            g.call_function(name, _function(facts, count), arguments, result), call.ty.shape
        )


class KeepJoinedGroupsApart(Pass[None]):
    """Keeps reshapes that join groups as free views, instead of copies in other tasks."""

    name, match = "conv.keep_joined_groups_apart", (RESHAPE,)
    dtype = ""
    after = ("conv.grouped_to_batched", "layout.move_elementwise_before_reshape")

    def check(self, call: Any, g: Graph) -> None:
        if not _joins_groups(g, call.args[0]):
            raise Leave("no grouped convolution is before it")

    def rewrite(self, call: Any, facts: None, g: Graph) -> Any:
        groups, joined = map(graph_rewriting.sizes_of, (call.args[0], call))
        return g.call_function("joined", _view(groups, joined), [call.args[0]], call.ty)


def _joins_groups(g: Graph, value: Any) -> bool:
    """Return whether GroupedConvToBatched made the value, up to operators moved after it."""
    call = g.producer(value)
    if call is None or operator_name(call) == RESHAPE:
        return False
    if operator_name(call) == "relax.call_tir":
        return str(call.args[0].name_hint).startswith(NAME)
    return bool(call.args) and _joins_groups(g, call.args[0])


def _view(groups: tuple[int, ...], joined: tuple[int, ...]) -> Any:
    axes = [f"i{at}" for at in range(len(joined))]
    *outer, last = (f"v{axis}" for axis in axes)
    source = ", ".join([*outer, f"{last} // {groups[-1]}", f"{last} % {groups[-1]}"])
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({pad_conv_to_vectors.shape(groups)}, "float32"),
    y: T.Buffer({pad_conv_to_vectors.shape(joined)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {", ".join(axes)} in T.grid{pad_conv_to_vectors.shape(joined)}:
        with T.sblock("joined"):
            {", ".join([*outer, last])} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{", ".join([*outer, last])}] = x[{source}]
""")


def _whole(outputs: int, lanes: int) -> int:
    """Round up to whole vectors, or to a power of two below one, if little is padding."""
    vector = min(lanes, 1 << (outputs - 1).bit_length())
    pays = graph_rewriting.mostly_whole(outputs, vector)
    return graph_rewriting.whole_vectors(outputs, vector) if pays else outputs


def _function(sizes: pad_conv_to_vectors.Sizes, count: int) -> Any:
    """Build the function that sums all padded outputs of a group and copies the real ones."""
    places = range(len(sizes.kernel))
    result = ["n", *(f"i{at}" for at in places), "g", "o"]
    summed = [*(f"r{at}" for at in places), "c"]
    channels, outputs = sizes.data[-1] // count, sizes.result[-1] // count
    padded = sizes.filled != sizes.data
    source = f"{'filled' if padded else 'x'}[vn, {pad_conv_to_vectors.read(sizes)}, vg * {channels} + vc]"
    sums = (*sizes.sums[:-1], count, sizes.outputs)
    names, shape = pad_conv_to_vectors.names, pad_conv_to_vectors.shape
    kinds = "S" * len(result) + "R" * len(summed)
    copied = (*sizes.result[:-1], count, outputs)
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({shape(sizes.data)}, "float32"),
    w: T.Buffer({shape((*sizes.kernel, channels, count, sizes.outputs))}, "float32"),
    y: T.Buffer({shape(copied)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
{pad_conv_to_vectors.filling(sizes) if padded else ""}
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
