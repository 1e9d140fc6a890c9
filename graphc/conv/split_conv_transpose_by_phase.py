"""Transposed convolutions without the zeros between their inputs.

With a stride of s the result is s x s interleaved images. Each is a plain convolution with every s-th weight,
and one tensor function computes all in place. Where the weights do not divide evenly, or the channels fill no
vectors, a pointwise convolution multiplies each input with each weight, and the result sums up its products.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call

from graphc.core import graph_rewriting

INJECTIVE = 2  # TVM's pattern kind
# Roughly the operations that a processor computes while one number is written and read again.
OPERATIONS_A_NUMBER = 40
# The layouts that TVM lowers by itself: data, weights, and the way back.
_FIRST = {
    3: ([0, 2, 1], [1, 2, 0], [0, 2, 1], ("NCW", "IOW")),
    4: ([0, 3, 1, 2], [2, 3, 0, 1], [0, 2, 3, 1], ("NCHW", "IOHW")),
}


@dataclass(frozen=True)
class Axis:
    """One dimension of the images, and how the kernel moves along it."""

    size: int
    kernel: int
    stride: int
    cut: int  # from the beginning of the result
    result: int

    @property
    def taps(self) -> int:
        """How many inputs a result needs, at most."""
        return -(-self.kernel // self.stride)

    @property
    def steps(self) -> int:
        """Results of one interleaved image."""
        return -(-self.result // self.stride)

    @property
    def margins(self) -> tuple[int, int]:
        """Zeros needed around the inputs."""
        last = self.steps - 1 + (self.stride - 1 + self.cut) // self.stride
        return max(0, self.taps - 1 - self.cut // self.stride), max(0, last - self.size + 1)

    @property
    def padded(self) -> int:
        return self.size + sum(self.margins)

    @property
    def first(self) -> int:
        """The padded input that the last tap reads where nothing is cut off."""
        return self.margins[0] - self.taps + 1

    @property
    def waste(self) -> float:
        """Multiplications over those of the weights alone."""
        return self.taps * self.stride / self.kernel

    def weights(self, kernels: Any, axis: int) -> Any:
        """The weights of each interleaved image, in the order of the inputs, in place of an axis."""
        wanted = [[(image + self.cut) % self.stride + self.stride * tap for tap in reversed(range(self.taps))]
                  for image in range(self.stride)]  # fmt: skip
        margins = [(0, 0)] * kernels.ndim
        margins[axis] = (0, self.taps * self.stride - self.kernel)
        return np.take(np.pad(kernels, margins), wanted, axis=axis)


@dataclass(frozen=True)
class Deconvolution:
    """A transposed convolution, channels last."""

    batch: int
    inputs: int
    outputs: int
    groups: int
    high: Axis
    wide: Axis

    @property
    def data(self) -> tuple[int, ...]:
        return self.batch, self.high.padded, self.wide.padded, self.inputs

    @property
    def result(self) -> tuple[int, ...]:
        return self.batch, self.high.result, self.wide.result, self.outputs

    @property
    def strided(self) -> bool:
        return max(self.high.stride, self.wide.stride) > 1

    @property
    def whole(self) -> bool:
        """True if all interleaved images are of one size."""
        return not self.high.result % self.high.stride and not self.wide.result % self.wide.stride

    def interleaves(self, lanes: int) -> bool:
        """True if the images fill vectors, and multiplying by zeros costs less than another tensor."""
        waste = self.high.waste * self.wide.waste
        cheap = self.outputs % lanes == 0 and waste <= 1 + OPERATIONS_A_NUMBER / self.inputs
        return self.strided and self.whole and (self.groups > 1 or cheap)


def transposed(lanes: int = graph_rewriting.LANES) -> Any:
    """The pass that rewrites those of constant weights; others go back to the layout that TVM lowers."""
    return graph_rewriting.graph_pass(
        "Transposed", lambda builder, graph: _rewrite_all(builder, graph, lanes)
    )


def _rewrite_all(builder: Any, graph: Any, lanes: int) -> Any:
    for operator in ("relax.nn.conv1d_transpose", "relax.nn.conv2d_transpose"):
        pattern = is_op(operator)(varg_default_wildcard=True)
        graph = rewrite_call(pattern, lambda call, _: _rewrite(builder, call, lanes), graph)
    return graph


def _rewrite(builder: Any, call: Any, lanes: int) -> Any:
    if call.attrs.data_layout not in ("NWC", "NHWC"):
        return call
    if not graph_rewriting.known(call) or not isinstance(call.args[1], tvm.ir.GenericConst):
        return _channels_first(call)
    sizes = _sizes(call)
    data = call.args[0] if call.ty.ndim == 4 else relax.op.expand_dims(call.args[0], 1)
    interleaved = sizes.interleaves(lanes)
    replaced = _interleaved if interleaved else _replaced
    result = replaced(builder, sizes, data, _kernels(call, sizes))
    if result is None:
        return _channels_first(call)
    direct = call.ty.ndim == 4 and not interleaved
    return result if direct else relax.op.reshape(result, graph_rewriting.sizes_of(call))


def _replaced(builder: Any, sizes: Deconvolution, data: Any, kernels: Any) -> Any | None:
    """The result, where images are not interleaved; None if there is no better way."""
    if not sizes.strided:
        return _convolution(sizes, data, kernels)
    return _summed(builder, sizes, data, kernels) if sizes.groups == 1 else None


def _sizes(call: Any) -> Deconvolution:
    attrs, (batch, *size, inputs), (_, *result, outputs) = (
        call.attrs,
        *map(graph_rewriting.sizes_of, (call.args[0], call)),
    )
    kernel = graph_rewriting.sizes_of(call.args[1])[:-2]
    steps = zip(size, kernel, attrs.strides, attrs.dilation, attrs.padding, result, strict=False)
    axes = [Axis(n, (k - 1) * int(d) + 1, int(s), int(p), r) for n, k, s, d, p, r in steps]
    high, wide = axes if len(axes) == 2 else (Axis(1, 1, 1, 0, 1), *axes)
    return Deconvolution(batch, inputs, outputs, int(attrs.groups), high, wide)


def _kernels(call: Any, sizes: Deconvolution) -> Any:
    """The weights as height, width, inputs of a group and all outputs; dilated ones have zeros between."""
    weights = call.args[1].value.numpy()
    weights = weights if weights.ndim == 4 else weights[None]
    down, across = [1, *map(int, call.attrs.dilation)][-2:]
    spread = np.zeros((sizes.high.kernel, sizes.wide.kernel, *weights.shape[2:]), weights.dtype)
    spread[::down, ::across] = weights
    grouped = spread.reshape(*spread.shape[:2], sizes.groups, -1, spread.shape[-1])
    return grouped.swapaxes(2, 3).reshape(*spread.shape[:2], -1, sizes.outputs)


def _convolution(sizes: Deconvolution, data: Any, kernels: Any) -> Any | None:
    """Without strides it is a convolution with turned weights."""
    axes = sizes.high, sizes.wide
    before = [axis.kernel - 1 - axis.cut for axis in axes]
    after = [axis.result + axis.cut - axis.size for axis in axes]
    if min(*before, *after) < 0:
        return None
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    turned = relax.const(np.ascontiguousarray(kernels[::-1, ::-1]))
    return relax.op.nn.conv2d(data, turned, padding=(*before, *after), groups=sizes.groups, **layout)


def _interleaved(builder: Any, sizes: Deconvolution, data: Any, kernels: Any) -> Any:
    high, wide = sizes.high, sizes.wide
    margins = 0, 0, *high.margins, *wide.margins, 0, 0
    around = relax.op.nn.pad(data, margins) if any(margins) else data
    split = wide.weights(high.weights(kernels, 0), 2).swapaxes(1, 2)
    shape = sizes.batch, high.steps, high.stride, wide.steps, wide.stride, sizes.outputs
    function = builder.add_func(_images(sizes, shape, split.shape, str(split.dtype)), "transposed_conv2d")
    weights = relax.const(np.ascontiguousarray(split))
    return relax.call_tir(function, [around, weights], relax.TensorType(shape, str(split.dtype)))


def _images(sizes: Deconvolution, shape: tuple[int, ...], weights: tuple[int, ...], dtype: str) -> Any:
    """All interleaved images, each pixel of which is a sum over some inputs."""
    high, wide, channels = sizes.high, sizes.wide, weights[4]
    row = f"vi + (va + {high.cut}) // {high.stride} + {high.first} + vr"
    column = f"vj + (vb + {wide.cut}) // {wide.stride} + {wide.first} + vs"
    channel = f"vo // {sizes.outputs // sizes.groups} * {channels} + vc" if sizes.groups > 1 else "vc"
    extents = *shape, high.taps, wide.taps, channels
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({graph_rewriting.numbers(sizes.data)}), "{dtype}"),
    w: T.Buffer(({graph_rewriting.numbers(weights)}), "{dtype}"),
    y: T.Buffer(({graph_rewriting.numbers(shape)}), "{dtype}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    for n, i, a, j, b, o, r, s, c in T.grid({graph_rewriting.numbers(extents)}):
        with T.sblock("sums"):
            vn, vi, va, vj, vb, vo, vr, vs, vc = T.axis.remap("SSSSSSRRR", [n, i, a, j, b, o, r, s, c])
            with T.init():
                y[vn, vi, va, vj, vb, vo] = T.{dtype}(0)
            y[vn, vi, va, vj, vb, vo] = (
                y[vn, vi, va, vj, vb, vo] + x[vn, {row}, {column}, {channel}] * w[va, vb, vr, vs, vc, vo]
            )
""")


def _summed(builder: Any, sizes: Deconvolution, data: Any, kernels: Any) -> Any:
    """One product of each input and each weight, and their sums."""
    pointwise = relax.const(
        np.ascontiguousarray(kernels.transpose(2, 0, 1, 3)).reshape(1, 1, sizes.inputs, -1)
    )
    products = relax.op.nn.conv2d(data, pointwise, data_layout="NHWC", kernel_layout="HWIO")
    function = builder.add_func(_sums(sizes, str(kernels.dtype)), "transposed_sums")
    return relax.call_tir(function, [products], relax.TensorType(sizes.result, str(kernels.dtype)))


def _sums(sizes: Deconvolution, dtype: str) -> Any:
    high, wide = sizes.high, sizes.wide
    taps = [(down, across) for down in range(high.taps) for across in range(wide.taps)]
    terms = " + ".join(_term(sizes, *tap, dtype) for tap in taps)
    products = sizes.batch, high.size, wide.size, high.kernel * wide.kernel * sizes.outputs
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({graph_rewriting.numbers(products)}), "{dtype}"),
    y: T.Buffer(({graph_rewriting.numbers(sizes.result)}), "{dtype}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {INJECTIVE}}})
    for n, i, j, o in T.grid({graph_rewriting.numbers(sizes.result)}):
        with T.sblock("sums"):
            vn, vi, vj, vo = T.axis.remap("SSSS", [n, i, j, o])
            y[vn, vi, vj, vo] = {terms}
""")


def _term(sizes: Deconvolution, down: int, across: int, dtype: str) -> str:
    """What one input adds to a result; zero beyond the images and the kernel."""
    row, weight_row, rows = _tap(sizes.high, "vi", down)
    column, weight_column, columns = _tap(sizes.wide, "vj", across)
    place = f"({weight_row} * {sizes.wide.kernel} + {weight_column}) * {sizes.outputs} + vo"
    value, conditions = f"x[vn, {row}, {column}, {place}]", " and ".join([*rows, *columns])
    return f"T.Select({conditions}, {value}, T.{dtype}(0))" if conditions else value


def _tap(axis: Axis, result: str, tap: int) -> tuple[str, str, list[str]]:
    """Which input and which weight a tap takes, both inside their ranges, and when they count."""
    place, weight = (
        f"(({result} + {axis.cut}) // {axis.stride} - {tap})",
        f"(({result} + {axis.cut}) % {axis.stride} + {axis.stride * tap})",
    )
    conditions = [f"0 <= {place}", f"{place} < {axis.size}"]
    if axis.stride * (tap + 1) > axis.kernel:
        conditions.append(f"{weight} < {axis.kernel}")
    return f"T.max(0, T.min({place}, {axis.size - 1}))", f"T.min({weight}, {axis.kernel - 1})", conditions


def _channels_first(call: Any) -> Any:
    """The same operator in the layout that TVM lowers."""
    data, weights, back, layouts = _FIRST[call.ty.ndim]
    attrs = {
        name: getattr(call.attrs, name)
        for name in ("strides", "padding", "output_padding", "dilation", "groups")
    }
    operator = relax.op.nn.conv1d_transpose if call.ty.ndim == 3 else relax.op.nn.conv2d_transpose
    first = relax.op.permute_dims(call.args[0], data), relax.op.permute_dims(call.args[1], weights)
    result = operator(*first, **attrs, data_layout=layouts[0], kernel_layout=layouts[1])
    return relax.op.permute_dims(result, back)
