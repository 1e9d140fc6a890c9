"""Products of bytes with constant weights: four per lane and instruction, summed in 32 bits.

The instruction is `vpdpbusd`, or two of `vpmaddwd` where there is none; `vpmaddubsw`, which multiplies bytes
as well, sums two of them in 16 bits, where they may not fit. It reads data without a sign and weights with
one, so data with a sign is moved up by 128. A zero point of the data is taken from the sums: it meets each
weight once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.target.codegen import target_has_features

from graphc.core import graph_rewriting
from graphc.quant import dot_product_function

QUAD = 4
FUNCTION = "mallorn_dot_int8"
_FROM_PLANES = (0, 2, 3, 1)
OFFSET = 128  # of numbers with a sign
_WIDER = {"int8": ("int16", "int32"), "uint8": ("int16", "int32"), "int16": ("int32",)}


def _at_once(lanes: int, features: str, intrinsic: str) -> str:
    vector = f"<{lanes} x i32>"
    return f"""
declare {vector} @llvm.x86.{intrinsic}({vector}, {vector}, {vector})
define linkonce_odr {vector} @{FUNCTION}({vector} %sums, {vector} %x, {vector} %w)
    alwaysinline nounwind "target-features"="{features}" {{
  %out = call {vector} @llvm.x86.{intrinsic}({vector} %sums, {vector} %x, {vector} %w)
  ret {vector} %out
}}
"""


def _by_pairs(lanes: int, features: str, intrinsic: str) -> str:
    """Bytes 0 and 2 of each lane, and 1 and 3, as numbers of 16 bits: their products never leave the lane."""
    vector, pairs = f"<{lanes} x i32>", f"<{2 * lanes} x i16>"
    eight, low = (f"<{', '.join([f'i16 {number}'] * 2 * lanes)}>" for number in (8, 255))
    return f"""
declare {vector} @llvm.x86.{intrinsic}({pairs}, {pairs})
define linkonce_odr {vector} @{FUNCTION}({vector} %sums, {vector} %x, {vector} %w)
    alwaysinline nounwind "target-features"="{features}" {{
  %data = bitcast {vector} %x to {pairs}
  %weights = bitcast {vector} %w to {pairs}
  %x.even = and {pairs} %data, {low}
  %x.odd = lshr {pairs} %data, {eight}
  %w.up = shl {pairs} %weights, {eight}
  %w.even = ashr {pairs} %w.up, {eight}
  %w.odd = ashr {pairs} %weights, {eight}
  %even = call {vector} @llvm.x86.{intrinsic}({pairs} %x.even, {pairs} %w.even)
  %odd = call {vector} @llvm.x86.{intrinsic}({pairs} %x.odd, {pairs} %w.odd)
  %both = add {vector} %even, %odd
  %out = add {vector} %sums, %both
  ret {vector} %out
}}
"""


#: By what a target must have, the best first: numbers of 32 bits in a vector, and the function for LLVM.
FEATURES = {
    "avx512vnni": (16, _at_once(16, "+avx512f,+avx512vnni", "avx512.vpdpbusd.512")),
    "avxvnni": (8, _at_once(8, "+avx2,+avxvnni", "avx512.vpdpbusd.256")),
    "avx512bw": (16, _by_pairs(16, "+avx512f,+avx512bw", "avx512.pmaddw.d.512")),
    "avx2": (8, _by_pairs(8, "+avx2", "avx2.pmadd.wd")),
}


def _instruction(feature: str, lanes: int) -> Any:
    """The rules of VNNI differ by their lanes."""
    rule = (
        f"{FUNCTION}_{lanes}"
        if feature.endswith("vnni")
        else f"{FUNCTION}_{lanes}_{dot_product_function.PAIRS}"
    )
    return dot_product_function.Instruction(rule, lanes, QUAD, "uint8", "int8", "int32")


for _feature, (_lanes, _text) in FEATURES.items():
    dot_product_function.register(_instruction(_feature, _lanes), FUNCTION, _text)


def instruction() -> Any | None:
    """That of the target, if it has one."""
    target = tvm.target.Target.current()
    has = target is not None and target.kind.name == "llvm"
    found = (feature for feature in FEATURES if has and target_has_features(feature, target))
    feature = next(found, None)
    return None if feature is None else _instruction(feature, FEATURES[feature][0])


def int8() -> Any:
    """The pass that rewrites products of integers whose sizes fit the instruction, where there is one."""
    return graph_rewriting.graph_pass("Int8", _rewrite)


def _rewrite(builder: Any, graph: Any) -> Any:
    by = instruction()
    if by is None:
        return graph
    values = relax.analysis.get_var2val(graph)
    for operator, rewrite in (("relax.matmul", _product), ("relax.nn.conv2d", _convolution)):

        def found(call: Any, rewrite: Any = rewrite) -> Any:
            product = _read(values, call) if dot_product_function.fits(call, by) else None
            return call if product is None else rewrite(builder, by, call, product)

        graph = graph_rewriting.rewrite_known(graph, operator, found)
    return graph


@dataclass(frozen=True)
class _Product:
    """Bytes, what is to be taken from each, and weights."""

    data: Any
    zero: Any | None  # an array of no dimension, or an expression
    weights: Any
    axes: tuple[int, ...] | None = None  # the data is transposed so before it is multiplied

    @property
    def ordered(self) -> Any:
        """The data as it is multiplied."""
        return self.data if self.axes is None else relax.op.permute_dims(self.data, self.axes)

    @property
    def known(self) -> bool:
        return self.zero is None or isinstance(self.zero, np.ndarray)

    @property
    def padding(self) -> int:
        """The byte that stands for nothing."""
        return 0 if self.zero is None else int(self.zero)

    def without_sign(self, signed: bool) -> "_Product":
        """The same product of bytes without a sign."""
        if not signed:
            return self
        moved = relax.op.add(relax.op.astype(self.data, "int16"), relax.const(OFFSET, "int16"))
        zero = relax.const(OFFSET, "int16") if self.zero is None else self.zero
        if self.known:
            zero = np.array(self.padding + OFFSET)
        else:
            zero = relax.op.add(relax.op.astype(zero, "int16"), relax.const(OFFSET, "int16"))
        return _Product(relax.op.astype(moved, "uint8"), zero, self.weights, self.axes)


def _read(values: Mapping[Any, Any], call: Any) -> _Product | None:
    """What is multiplied, behind what only makes it wider."""
    data, zero = _wide(values, call.args[0]), None
    transposed = graph_rewriting.call_of(values, data, "relax.permute_dims")
    if transposed is not None:
        data = _wide(values, transposed.args[0])
    less = graph_rewriting.call_of(values, data, "relax.subtract")
    if less is not None and less.args[1].ty.ndim == 0:
        data, zero = _wide(values, less.args[0]), less.args[1]
        zero = zero.value.numpy() if isinstance(zero, tvm.ir.GenericConst) else zero
    dtype = data.ty.dtype
    axes = None if transposed is None else _axes(transposed)
    weights = call.args[1].value.numpy()
    if dtype not in ("int8", "uint8") or weights.min() < -OFFSET or weights.max() >= OFFSET:
        return None
    return _Product(data, zero, weights.astype("int8"), axes).without_sign(dtype == "int8")


def _axes(transposed: Any) -> tuple[int, ...]:
    ndim = transposed.ty.ndim
    return tuple(int(axis) % ndim for axis in transposed.attrs.axes or range(ndim)[::-1])


def _wide(values: Mapping[Any, Any], value: Any) -> Any:
    cast = graph_rewriting.call_of(values, value, "relax.astype")
    if cast is None or cast.ty.dtype not in _WIDER.get(str(cast.args[0].ty.dtype), ()):
        return value
    return _wide(values, cast.args[0])


def _product(builder: Any, by: Any, call: Any, product: _Product) -> Any:
    """Rows with a matrix; inputs that are no quads are filled up."""
    sizes, weights, data = graph_rewriting.sizes_of(call.args[0]), product.weights, product.ordered
    if weights.ndim != 2 or len(sizes) < 2:
        return call
    missing = -sizes[-1] % QUAD
    if missing:
        weights = np.pad(weights, ((0, missing), (0, 0)))
        data = relax.op.nn.pad(data, (*[0] * (2 * len(sizes) - 1), missing))
        sizes = *sizes[:-1], sizes[-1] + missing
    read = *(f"vi{axis}" for axis in range(len(sizes) - 1)), by.step
    of = dot_product_function.Sums(sizes, graph_rewriting.sizes_of(call), sizes[-1], read)
    return _less_zero(dot_product_function.call(builder, by, "int8_matmul", data, weights, of), product)


def _convolution(builder: Any, by: Any, call: Any, product: _Product) -> Any:
    attrs = call.attrs
    quads = graph_rewriting.sizes_of(call.args[0])[-1] % QUAD == 0
    if not graph_rewriting.channels_last(call) or int(attrs.groups) != 1 or not product.known:
        return call
    if not quads and int(attrs.dilation[1]) != 1:
        return call
    rows = _window_of_planes if product.axes == _FROM_PLANES else _window_of_rows
    return _less_zero((_window if quads else rows)(builder, by, call, product), product)


def _window(builder: Any, by: Any, call: Any, product: _Product) -> Any:
    """A convolution whose inputs are quads at every place of the window."""
    sizes, weights = graph_rewriting.sizes_of(call.args[0]), product.weights
    data, sizes = _padded(product, sizes, call.attrs.padding, 0)
    down, across = map(int, call.attrs.strides)
    below, beside = map(int, call.attrs.dilation)
    read = "vi0", f"vi1 * {down} + vr0 * {below}", f"vi2 * {across} + vr1 * {beside}", by.step
    of = dot_product_function.Sums(sizes, graph_rewriting.sizes_of(call), sizes[-1], read, weights.shape[:2])
    return dot_product_function.call(builder, by, "int8_conv2d", data, weights, of)


def _window_of_rows(builder: Any, by: Any, call: Any, product: _Product) -> Any:
    """A convolution of other inputs, as of a picture: quads lie along the window's rows.

    They may end behind a row of the window, where weights are zero.
    """
    high, wide, channels, outputs = product.weights.shape
    inputs = wide * channels
    missing = -inputs % QUAD
    weights = np.pad(product.weights.reshape(high, inputs, outputs), ((0, 0), (0, missing), (0, 0)))
    data, sizes = _padded(
        product, graph_rewriting.sizes_of(call.args[0]), call.attrs.padding, -(-missing // channels)
    )
    batch, height, width, _ = sizes
    flat = batch, height, width * channels
    down, across = map(int, call.attrs.strides)
    below = int(call.attrs.dilation[0])
    read = "vi0", f"vi1 * {down} + vr0 * {below}", f"vi2 * {across * channels} + {by.step}"
    of = dot_product_function.Sums(flat, graph_rewriting.sizes_of(call), inputs + missing, read, (high,))
    return dot_product_function.call(builder, by, "int8_conv2d", relax.op.reshape(data, flat), weights, of)


def _window_of_planes(builder: Any, by: Any, call: Any, product: _Product) -> Any:
    """The same of a picture whose channels lie behind each other: quads lie along each channel's rows."""
    high, wide, channels, _ = product.weights.shape
    missing = -wide % QUAD
    weights = np.pad(product.weights.transpose(2, 0, 1, 3), ((0, 0), (0, 0), (0, missing), (0, 0)))
    top, left, bottom, right = map(int, call.attrs.padding)
    batch, height, width, _ = graph_rewriting.sizes_of(call.args[0])
    sizes = batch, channels, height + top + bottom, width + left + right + missing
    data = _surrounded(product.data, (0, 0, 0, 0, top, bottom, left, right + missing), product)
    down, across = map(int, call.attrs.strides)
    below = int(call.attrs.dilation[0])
    read = "vi0", "vr0", f"vi1 * {down} + vr1 * {below}", f"vi2 * {across} + {by.step}"
    of = dot_product_function.Sums(
        sizes, graph_rewriting.sizes_of(call), wide + missing, read, (channels, high)
    )
    return dot_product_function.call(builder, by, "int8_conv2d", data, weights, of)


def _surrounded(data: Any, margins: tuple[int, ...], product: _Product) -> Any:
    """The data with margins of nothing."""
    return relax.op.nn.pad(data, margins, pad_value=product.padding) if any(margins) else data


def _padded(
    product: _Product, sizes: tuple[int, ...], padding: Any, more: int
) -> tuple[Any, tuple[int, ...]]:
    """Data with a margin of nothing, and some columns more behind it; and its sizes."""
    top, left, bottom, right = map(int, padding)
    margins = 0, 0, top, bottom, left, right + more, 0, 0
    data = _surrounded(product.ordered, margins, product)
    batch, height, width, channels = sizes
    return data, (batch, height + top + bottom, width + left + right + more, channels)


def _less_zero(found: Any, product: _Product) -> Any:
    """The sums without what the zero point brought to them."""
    if product.zero is None or (product.known and not product.padding):
        return found
    columns = product.weights.astype("int32").sum(axis=tuple(range(product.weights.ndim - 1)), dtype="int32")
    if product.known:
        return relax.op.subtract(found, relax.const(columns * np.int32(product.padding)))
    return relax.op.subtract(
        found, relax.op.multiply(relax.op.astype(product.zero, "int32"), relax.const(columns))
    )
