"""Compute transposed convolutions without multiplying the zeros between their inputs.

With stride s, results whose row and column have the same remainders modulo s read the same
weights. They form s x s interleaved images. Each is a plain convolution with every s-th
weight, and one function computes all of them. Where that is wasteful (see
`Deconvolution.needs_phase_split`), a pointwise convolution multiplies inputs by weights,
and a second function adds up the products. With stride 1, flipped weights are enough.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import (
    OUT_ELEMENTWISE_FUSABLE,
    has_known_sizes,
    numbers,
    parse_tvmscript,
    sizes_of,
)

# Arithmetic operations that a processor does while it writes and reads one number.
OPERATIONS_A_NUMBER = 40


@dataclass(frozen=True)
class StridedAxis:
    """A spatial dimension of a transposed convolution: sizes, kernel, stride and crop."""

    size: int
    kernel: int
    stride: int
    cut: int  # results cut off at the beginning
    result: int

    @property
    def inputs_per_result(self) -> int:
        """The most inputs along this axis that contribute to one result."""
        return -(-self.kernel // self.stride)

    @property
    def results_per_phase(self) -> int:
        """The most results along this axis with the same index modulo the stride."""
        return -(-self.result // self.stride)

    @property
    def margins(self) -> tuple[int, int]:
        """Zeros to add before and after the inputs, so that every weight has an input."""
        last = self.results_per_phase - 1 + (self.stride - 1 + self.cut) // self.stride
        return max(0, self.inputs_per_result - 1 - self.cut // self.stride), max(0, last - self.size + 1)

    @property
    def padded(self) -> int:
        return self.size + sum(self.margins)

    @property
    def first_input_offset(self) -> int:
        """Offset from (result index // stride) to the first padded input it reads."""
        return self.margins[0] - self.inputs_per_result + 1

    @property
    def padded_weight_ratio(self) -> float:
        """Number of weights, padded to a multiple of the stride, relative to `kernel`."""
        return self.inputs_per_result * self.stride / self.kernel

    def weights(self, kernels: Any, axis: int) -> Any:
        """Split the kernel axis by result index modulo stride, then by input in order."""
        steps = [self.stride * tap for tap in reversed(range(self.inputs_per_result))]
        taps = [[(image + self.cut) % self.stride + step for step in steps] for image in range(self.stride)]
        margins = [(0, 0)] * kernels.ndim
        margins[axis] = (0, self.inputs_per_result * self.stride - self.kernel)
        return np.take(np.pad(kernels, margins), taps, axis=axis)


@dataclass(frozen=True)
class Deconvolution:
    """The sizes of a channels-last transposed convolution."""

    batch: int
    inputs: int
    outputs: int
    groups: int
    high: StridedAxis
    wide: StridedAxis

    @property
    def result(self) -> tuple[int, ...]:
        return self.batch, self.high.result, self.wide.result, self.outputs

    @property
    def phase_result_shape(self) -> tuple[int, ...]:
        """Shape of the result, with spatial axes split into i // stride, i % stride."""
        rows, columns = ((axis.results_per_phase, axis.stride) for axis in (self.high, self.wide))
        return self.batch, *rows, *columns, self.outputs

    @property
    def plain_conv_padding(self) -> tuple[int, ...]:
        """Padding of the convolution that replaces a stride-1 one; may be negative."""
        axes = self.high, self.wide
        low_margins = (axis.kernel - 1 - axis.cut for axis in axes)
        return *low_margins, *(axis.result + axis.cut - axis.size for axis in axes)

    @property
    def is_strided(self) -> bool:
        return max(self.high.stride, self.wide.stride) > 1

    def needs_phase_split(self, lanes: int) -> bool:
        """Return whether to run one convolution per result index modulo the stride."""
        waste = self.high.padded_weight_ratio * self.wide.padded_weight_ratio
        cheap = self.outputs % lanes == 0 and waste <= 1 + OPERATIONS_A_NUMBER / self.inputs
        has_equal_phases = all(axis.result % axis.stride == 0 for axis in (self.high, self.wide))
        return self.is_strided and has_equal_phases and (self.groups > 1 or cheap)


INJECTIVE = 2  # TVM's pattern kind


def build_phase_function(sizes: Deconvolution, weights: tuple[int, ...], dtype: str) -> Any:
    """Build the function that computes results grouped by their index modulo the stride."""
    high, wide, channels = sizes.high, sizes.wide, weights[4]
    row = f"vi + (va + {high.cut}) // {high.stride} + {high.first_input_offset} + vr"
    column = f"vj + (vb + {wide.cut}) // {wide.stride} + {wide.first_input_offset} + vs"
    channel = f"vo // {sizes.outputs // sizes.groups} * {channels} + vc" if sizes.groups > 1 else "vc"
    data = sizes.batch, high.padded, wide.padded, sizes.inputs
    extents = *sizes.phase_result_shape, high.inputs_per_result, wide.inputs_per_result, channels
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({numbers(data)}), "{dtype}"),
    w: T.Buffer(({numbers(weights)}), "{dtype}"),
    y: T.Buffer(({numbers(sizes.phase_result_shape)}), "{dtype}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
    for n, i, a, j, b, o, r, s, c in T.grid({numbers(extents)}):
        with T.sblock("sums"):
            vn, vi, va, vj, vb, vo, vr, vs, vc = T.axis.remap("SSSSSSRRR", [n, i, a, j, b, o, r, s, c])
            with T.init():
                y[vn, vi, va, vj, vb, vo] = T.{dtype}(0)
            y[vn, vi, va, vj, vb, vo] = (
                y[vn, vi, va, vj, vb, vo] + x[vn, {row}, {column}, {channel}] * w[va, vb, vr, vs, vc, vo]
            )
""")


def sums_function(sizes: Deconvolution, dtype: str) -> Any:
    """Build the function that adds up the products of inputs and weights per result."""
    high, wide = sizes.high, sizes.wide
    terms = []  # one tap's product each; zero outside the image and the kernel
    for down, across in product(range(high.inputs_per_result), range(wide.inputs_per_result)):
        row, weight_row, row_conditions = _format_tap_indices(high, "vi", down)
        column, weight_column, column_conditions = _format_tap_indices(wide, "vj", across)
        place = f"({weight_row} * {wide.kernel} + {weight_column}) * {sizes.outputs} + vo"
        value = f"x[vn, {row}, {column}, {place}]"
        conditions = " and ".join([*row_conditions, *column_conditions])
        terms.append(f"T.Select({conditions}, {value}, T.{dtype}(0))")
    products = sizes.batch, high.size, wide.size, high.kernel * wide.kernel * sizes.outputs
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({numbers(products)}), "{dtype}"),
    y: T.Buffer(({numbers(sizes.result)}), "{dtype}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {INJECTIVE}}})
    for n, i, j, o in T.grid({numbers(sizes.result)}):
        with T.sblock("sums"):
            vn, vi, vj, vo = T.axis.remap("SSSS", [n, i, j, o])
            y[vn, vi, vj, vo] = {" + ".join(terms)}
""")


def _format_tap_indices(axis: StridedAxis, result: str, tap: int) -> tuple[str, str, list[str]]:
    """Return clamped indices of one input and weight, and conditions that both exist."""
    place = f"(({result} + {axis.cut}) // {axis.stride} - {tap})"
    weight = f"(({result} + {axis.cut}) % {axis.stride} + {axis.stride * tap})"
    conditions = [f"0 <= {place}", f"{place} < {axis.size}"]
    if axis.stride * (tap + 1) > axis.kernel:
        conditions.append(f"{weight} < {axis.kernel}")
    return f"T.max(0, T.min({place}, {axis.size - 1}))", f"T.min({weight}, {axis.kernel - 1})", conditions


# The layouts that TVM can lower: permutations of data, weights and result, and names.
_FIRST = {
    3: ([0, 2, 1], [1, 2, 0], [0, 2, 1], ("NCW", "IOW")),
    4: ([0, 3, 1, 2], [2, 3, 0, 1], [0, 2, 3, 1], ("NCHW", "IOHW")),
}
_LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
Way = Callable[[Any, Deconvolution, Graph], Any]


class SplitConvTransposeByPhase(Pass[tuple[Way, Deconvolution] | None]):
    """Computes transposed convolutions as plain ones, without multiplying inserted zeros."""

    name = "split_conv_transpose_by_phase"
    match = ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose")
    dtype, any_size = "", True
    is_required, needed_by = True, ("relax.transform.ConvertLayout",)  # TVM lowers them only channels-first

    def check(self, call: Any, g: Graph) -> tuple[Way, Deconvolution] | None:
        """Return how to compute the call, and its sizes; None to make it channels-first."""
        if call.attrs.data_layout not in ("NWC", "NHWC"):
            raise Leave("the channels of the transposed convolution are not last")
        if not has_known_sizes(call) or not g.is_constant(call.args[1]):
            return None
        attrs = call.attrs
        batch, *size, inputs = sizes_of(call.args[0])
        _, *result, outputs = sizes_of(call)
        kernel = sizes_of(call.args[1])[:-2]
        steps = zip(size, kernel, attrs.strides, attrs.dilation, attrs.padding, result, strict=False)
        axes = [StridedAxis(n, (k - 1) * int(d) + 1, int(s), int(p), r) for n, k, s, d, p, r in steps]
        high, wide = axes if len(axes) == 2 else (StridedAxis(1, 1, 1, 0, 1), *axes)
        sizes = Deconvolution(batch, inputs, outputs, int(attrs.groups), high, wide)
        if sizes.needs_phase_split(g.lanes):
            return _rewrite_as_phase_convolutions, sizes
        if sizes.is_strided:
            return (_products_and_sums, sizes) if sizes.groups == 1 else None
        return (_flipped_convolution, sizes) if min(sizes.plain_conv_padding) >= 0 else None

    def rewrite(self, call: Any, facts: tuple[Way, Deconvolution] | None, g: Graph) -> Any:
        if facts is None:
            # Use the same operator in the layout that TVM lowers.
            data, weights, back, layouts = _FIRST[call.ty.ndim]
            names = ("strides", "padding", "output_padding", "dilation", "groups")
            attrs = {name: getattr(call.attrs, name) for name in names}
            operator = relax.op.nn.conv1d_transpose if call.ty.ndim == 3 else relax.op.nn.conv2d_transpose
            result = operator(
                relax.op.permute_dims(call.args[0], data),
                relax.op.permute_dims(call.args[1], weights),
                **attrs,
                data_layout=layouts[0],
                kernel_layout=layouts[1],
            )
            return relax.op.permute_dims(result, back)
        way, sizes = facts
        result = way(call, sizes, g)
        direct = call.ty.ndim == 4 and way is not _rewrite_as_phase_convolutions
        return result if direct else relax.op.reshape(result, sizes_of(call))


def _kernels(call: Any, sizes: Deconvolution) -> Any:
    """Return weights as [height, width, inputs per group, outputs], dilated by zeros."""
    weights = call.args[1].value.numpy()
    weights = weights if weights.ndim == 4 else weights[None]
    down, across = [1, *map(int, call.attrs.dilation)][-2:]
    spread = np.zeros((sizes.high.kernel, sizes.wide.kernel, *weights.shape[2:]), weights.dtype)
    spread[::down, ::across] = weights
    grouped = spread.reshape(*spread.shape[:2], sizes.groups, -1, spread.shape[-1])
    return grouped.swapaxes(2, 3).reshape(*spread.shape[:2], -1, sizes.outputs)


def _expand_data_to_2d(call: Any) -> Any:
    return call.args[0] if call.ty.ndim == 4 else relax.op.expand_dims(call.args[0], 1)


def _flipped_convolution(call: Any, sizes: Deconvolution, _: Graph) -> Any:
    flipped = relax.const(np.ascontiguousarray(_kernels(call, sizes)[::-1, ::-1]))
    return relax.op.nn.conv2d(
        _expand_data_to_2d(call), flipped, padding=sizes.plain_conv_padding, groups=sizes.groups, **_LAST
    )


def _rewrite_as_phase_convolutions(call: Any, sizes: Deconvolution, g: Graph) -> Any:
    high, wide = sizes.high, sizes.wide
    margins = 0, 0, *high.margins, *wide.margins, 0, 0
    data = _expand_data_to_2d(call)
    padded_data = relax.op.nn.pad(data, margins) if any(margins) else data
    split = wide.weights(high.weights(_kernels(call, sizes), 0), 2).swapaxes(1, 2)
    function = build_phase_function(sizes, split.shape, str(split.dtype))
    arguments = [padded_data, relax.const(np.ascontiguousarray(split))]
    result = relax.TensorType(sizes.phase_result_shape, str(split.dtype))
    return g.call_function("transposed_conv2d", function, arguments, result)


def _products_and_sums(call: Any, sizes: Deconvolution, g: Graph) -> Any:
    kernels = _kernels(call, sizes)
    pointwise = np.ascontiguousarray(kernels.transpose(2, 0, 1, 3)).reshape(1, 1, sizes.inputs, -1)
    products = relax.op.nn.conv2d(_expand_data_to_2d(call), relax.const(pointwise), **_LAST)
    result = relax.TensorType(sizes.result, str(kernels.dtype))
    return g.call_function("transposed_sums", sums_function(sizes, str(kernels.dtype)), [products], result)
