"""Compute grouped convolutions with the groups as an axis, so that loops can be tiled.

TVM's version finds the group by dividing the output channel, an index that cannot be tiled.
"""

from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.conv import pad_conv_to_vectors
from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name

NAME, RESHAPE = "grouped_", "relax.reshape"


class GroupedConvToBatched(Pass[pad_conv_to_vectors.Sizes]):
    """Computes grouped, non-depthwise convolutions with the groups as a separate axis."""

    name, match = "grouped_conv_to_batched", tuple(pad_conv_to_vectors.LAYOUTS)
    after = ("conv3x3_to_winograd", "fuse_pointwise_into_depthwise")

    def check(self, call: Any, g: Graph) -> pad_conv_to_vectors.Sizes:
        if not pad_conv_to_vectors.is_supported(call):
            raise Leave("the channels are not last, or the weights are computed")
        if int(call.attrs.groups) == 1:
            raise Leave("the convolution has one group")
        if int(call.args[1].ty.shape[-2]) == 1:
            raise Leave("the convolution is depthwise")
        outputs = int(call.ty.shape[-1]) // int(call.attrs.groups)
        # Round up to whole vectors, or to a power of two below one, if little is padding.
        vector = min(g.lanes, 1 << (outputs - 1).bit_length())
        if graph_rewriting.is_worth_padding(outputs, vector):
            outputs = graph_rewriting.round_up_to_vectors(outputs, vector)
        return pad_conv_to_vectors.compute_padded_sizes(call, outputs)

    def rewrite(self, call: Any, facts: pad_conv_to_vectors.Sizes, g: Graph) -> Any:
        weights, count = g.array(call.args[1]), int(call.attrs.groups)
        by_group = weights.reshape(*weights.shape[:-1], count, -1)
        outputs = by_group.shape[-1]
        padded_weights = np.pad(by_group, [(0, 0)] * weights.ndim + [(0, facts.outputs - outputs)])
        name = f"{NAME}{call.op.name.rpartition('.')[2]}"
        result = relax.TensorType((*facts.result[:-1], count, outputs), "float32")
        arguments = [call.args[0], relax.const(padded_weights)]
        function = pad_conv_to_vectors.padded_convolution(facts, (count,))
        return relax.op.reshape(g.call_function(name, function, arguments, result), call.ty.shape)


class KeepJoinedGroupsApart(Pass[None]):
    """Keeps the reshape after a grouped convolution a separate function, to avoid a copy."""

    name, match = "keep_joined_groups_apart", (RESHAPE,)
    dtype = ""
    after = ("grouped_conv_to_batched", "move_elementwise_before_reshape")

    def check(self, call: Any, g: Graph) -> None:
        if not _is_grouped_conv_result(g, call.args[0]):
            raise Leave("no grouped convolution computes the input")

    def rewrite(self, call: Any, facts: None, g: Graph) -> Any:
        groups, sizes = map(graph_rewriting.sizes_of, (call.args[0], call))
        shape, names = pad_conv_to_vectors.buffer_shape, pad_conv_to_vectors.join_names
        axes = [f"i{axis}" for axis in range(len(sizes))]
        *outer, last = (f"v{axis}" for axis in axes)
        source = ", ".join([*outer, f"{last} // {groups[-1]}", f"{last} % {groups[-1]}"])
        function = graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({shape(groups)}, "float32"),
    y: T.Buffer({shape(sizes)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {names(axes)} in T.grid{shape(sizes)}:
        with T.sblock("joined"):
            {names(axes, "v")} = T.axis.remap("{"S" * len(axes)}", [{names(axes)}])
            y[{names(axes, "v")}] = x[{source}]
""")
        return g.call_function("joined", function, [call.args[0]], call.ty)


def _is_grouped_conv_result(g: Graph, value: Any) -> bool:
    """Return whether the value comes from GroupedConvToBatched with no reshape between."""
    call = g.producer(value)
    if call is None or operator_name(call) == RESHAPE:
        return False
    if operator_name(call) == "relax.call_tir":
        return str(call.args[0].name_hint).startswith(NAME)
    return bool(call.args) and _is_grouped_conv_result(g, call.args[0])
