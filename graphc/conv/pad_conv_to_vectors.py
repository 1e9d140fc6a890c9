"""Pad convolutions whose output sizes do not fill vectors or register tiles.

For example, 24 channels need three vectors of 8, but only two of 16 if padded to 32. A
width of 37 has no divisor that makes a good register tile; 39 has one (13).
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import tvm
from tvm import relax

from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.core.graph_pass import Graph, Leave, Pass

LAYOUTS = {"relax.nn.conv1d": ("NWC", "WIO", "NWC"), "relax.nn.conv2d": ("NHWC", "HWIO", "NHWC")}


@dataclass(frozen=True)
class Sizes:
    """Sizes of a 1-D or 2-D convolution, and the padded sizes at which it is computed."""

    data: tuple[int, ...]
    kernel: tuple[int, ...]
    result: tuple[int, ...]
    outputs: int  # output channels as computed, padding included
    width: int  # columns as computed, padding included
    low_padding: tuple[int, ...]  # zeros before the data, per spatial dimension
    high_padding: tuple[int, ...]  # zeros after it
    strides: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def padded_result_shape(self) -> tuple[int, ...]:
        return (*self.result[:-2], self.width, self.outputs)

    @property
    def conv_padded_data_shape(self) -> tuple[int, ...]:
        """The shape of the data after the convolution's own padding with zeros."""
        sides = zip(self.low_padding, self.data[1:-1], self.high_padding, strict=True)
        return (self.data[0], *map(sum, sides), self.data[-1])

    @property
    def enlarged_data_shape(self) -> tuple[int, ...]:
        """The shape of the data, with zeros added for all that padded results read."""
        places = zip(self.padded_result_shape[1:-1], self.kernel, self.strides, self.dilation, strict=True)
        reach = ((size - 1) * stride + (taps - 1) * step + 1 for size, taps, stride, step in places)
        return (self.data[0], *map(max, self.conv_padded_data_shape[1:-1], reach), self.data[-1])


class PadConvToVectors(Pass[Sizes]):
    """Pads the width of convolutions, and output channels if at most a third is padding."""

    name, match = "pad_conv_to_vectors", tuple(LAYOUTS)
    after = ("conv3x3_to_winograd", "fuse_pointwise_into_depthwise")

    def check(self, call: Any, g: Graph) -> Sizes:
        if not is_supported(call):
            raise Leave("the channels are not last, or the weights are computed")
        if int(call.attrs.groups) > 1:
            raise Leave("the convolution has groups")
        result = graph_rewriting.sizes_of(call)
        sizes = compute_padded_sizes(call, graph_rewriting.round_up_columns(result[-1], g.lanes))
        if sizes.padded_result_shape == result:
            raise Leave("the sizes of the convolution fill vectors and tiles already")
        return sizes

    def rewrite(self, call: Any, facts: Sizes, g: Graph) -> Any:
        weights = g.array(call.args[1])
        padding = facts.outputs - weights.shape[-1]
        padded_weights = np.pad(weights, [*[(0, 0)] * (weights.ndim - 1), (0, padding)])
        name = f"whole_{call.op.name.rpartition('.')[2]}"
        arguments = [call.args[0], relax.const(padded_weights)]
        return g.call_function(name, padded_convolution(facts), arguments, call.ty)


def is_supported(call: Any) -> bool:
    """Return whether a call is a channels-last float32 conv with constant weights."""
    attrs = call.attrs
    layouts = attrs.data_layout, attrs.kernel_layout, attrs.out_layout
    constant = isinstance(call.args[1], tvm.ir.GenericConst) and call.ty.dtype == "float32"
    return bool(constant and layouts == LAYOUTS[call.op.name])


def compute_padded_sizes(call: Any, outputs: int) -> Sizes:
    """Return a convolution's sizes with `outputs` output channels and the width padded."""
    attrs, result = call.attrs, graph_rewriting.sizes_of(call)
    padding, places = tuple(map(int, attrs.padding)), len(result) - 2
    return Sizes(
        data=graph_rewriting.sizes_of(call.args[0]),
        kernel=graph_rewriting.sizes_of(call.args[1])[:places],
        result=result,
        outputs=outputs,
        width=graph_rewriting.round_up_rows(result[-2]),
        low_padding=padding[:places],
        high_padding=padding[places:],
        strides=tuple(map(int, attrs.strides)),
        dilation=tuple(map(int, attrs.dilation)),
    )


def padded_convolution(sizes: Sizes, groups: tuple[int, ...] = ()) -> Any:
    """Build a function that computes a padded convolution and copies the real results out.

    `groups` is empty, or holds the number of groups, which then have their own axis.
    """
    spatial_axes = range(len(sizes.kernel))
    outputs = ["g", "o"] if groups else ["o"]
    result = ["n", *(f"i{axis}" for axis in spatial_axes), *outputs]
    terms = [*(f"r{axis}" for axis in spatial_axes), "c"]
    channels, real_outputs = sizes.data[-1] // prod(groups), sizes.result[-1] // prod(groups)
    is_padded = sizes.enlarged_data_shape != sizes.data
    channel = f"vg * {channels} + vc" if groups else "vc"
    source = f"{'filled' if is_padded else 'x'}[vn, {data_indices(sizes)}, {channel}]"
    sums = (*sizes.padded_result_shape[:-1], *groups, sizes.outputs)
    real_sums = (*sizes.result[:-1], *groups, real_outputs)
    kinds, z = "S" * len(result) + "R" * len(terms), f"z[{join_names(result, 'v')}]"
    return graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer({buffer_shape(sizes.data)}, "float32"),
    w: T.Buffer({buffer_shape((*sizes.kernel, channels, *groups, sizes.outputs))}, "float32"),
    y: T.Buffer({buffer_shape(real_sums)}, "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
{padding_block(sizes) if is_padded else ""}
    z = T.sblock_alloc_buffer({buffer_shape(sums)}, "float32")
    for {join_names(result + terms)} in T.grid{buffer_shape((*sums, *sizes.kernel, channels))}:
        with T.sblock("sums"):
            {join_names(result + terms, "v")} = T.axis.remap("{kinds}", [{join_names(result + terms)}])
            with T.init():
                {z} = T.float32(0)
            {z} = {z} + {source} * w[{join_names([*terms, *outputs], "v")}]
{graph_rewriting.format_result_copy(real_sums)}""")


def data_indices(sizes: Sizes) -> str:
    """Return TVMScript for the spatial indices at which the convolution reads its data."""
    steps = enumerate(zip(sizes.strides, sizes.dilation, strict=True))
    return ", ".join(
        f"{_scaled(f'vi{axis}', stride)} + {_scaled(f'vr{axis}', dilation)}"
        for axis, (stride, dilation) in steps
    )


def padding_block(sizes: Sizes) -> str:
    """Return a TVMScript block that copies the data into a buffer with zeros around it."""
    axes = ["n", *(f"i{axis}" for axis in range(len(sizes.kernel))), "c"]
    condition, place = inside_condition(sizes)
    value = f"T.if_then_else({condition}, x[vn, {place}, vc], T.float32(0))"
    return f"""
    filled = T.sblock_alloc_buffer({buffer_shape(sizes.enlarged_data_shape)}, "float32")
    for {join_names(axes)} in T.grid{buffer_shape(sizes.enlarged_data_shape)}:
        with T.sblock("fill"):
            {join_names(axes, "v")} = T.axis.remap("{"S" * len(axes)}", [{join_names(axes)}])
            filled[{join_names(axes, "v")}] = {value}
"""


def inside_condition(sizes: Sizes) -> tuple[str, str]:
    """Return TVMScript for whether padded indices are in the data, and for where."""
    conditions, indices = [], []
    for axis, (first, size) in enumerate(zip(sizes.low_padding, sizes.data[1:-1], strict=True)):
        conditions.append(f"{first} <= vi{axis} and vi{axis} < {first + size}")
        indices.append(f"vi{axis} - {first}" if first else f"vi{axis}")
    return " and ".join(conditions), ", ".join(indices)


def join_names(axes: list[str], prefix: str = "") -> str:
    return ", ".join(prefix + axis for axis in axes)


def _scaled(axis: str, step: int) -> str:
    return axis if step == 1 else f"{axis} * {step}"


def buffer_shape(sizes: tuple[int, ...]) -> str:
    return f"({graph_rewriting.numbers(sizes)})"
