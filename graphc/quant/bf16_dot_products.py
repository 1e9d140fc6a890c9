"""Products with constant weights in bfloat16: two per lane and instruction, summed in float32.

Data is rounded before a product; sums stay float32. One instruction (`vdpbf16ps`) computes sixteen results,
so weights are laid out as it reads them: sixteen columns of two rows side by side.
"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.target.codegen import target_has_features

from graphc.core import graph_rewriting
from graphc.quant import dot_product_function

LANES, PAIR = 16, 2  # of the instruction
DOT = "mallorn_dot_bf16"

_LLVM_DOT = "@llvm.x86.avx512bf16.dpbf16ps.512"
# TVM keeps bfloat16 as integers on CPUs; this function tells LLVM that they are bfloat16.
LLVM = f"""
declare <16 x float> {_LLVM_DOT}(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define linkonce_odr <16 x float> @{DOT}(<16 x float> %sums, <16 x i32> %x, <16 x i32> %w)
    alwaysinline nounwind "target-features"="+avx512f,+avx512bf16" {{
  %data = bitcast <16 x i32> %x to <32 x bfloat>
  %weights = bitcast <16 x i32> %w to <32 x bfloat>
  %out = call <16 x float> {_LLVM_DOT}(<16 x float> %sums, <32 x bfloat> %data, <32 x bfloat> %weights)
  ret <16 x float> %out
}}
"""

NARROW = "bfloat16"
BY = dot_product_function.Instruction(DOT, LANES, PAIR, NARROW, NARROW, "float32")
dot_product_function.register(BY, DOT, LLVM)


def bf16() -> Any:
    """The pass that rewrites every product with constant weights whose sizes fit the instruction."""
    return graph_rewriting.graph_pass("Bf16", _rewrite)


def _rewrite(builder: Any, graph: Any) -> Any:
    target = tvm.target.Target.current()
    if target is None or not target_has_features("avx512bf16", target):
        raise ValueError("the target's processor has no products of bfloat16 (avx512bf16)")
    graph = graph_rewriting.rewrite_known(graph, "relax.matmul", lambda call: _product(builder, call))
    values = relax.analysis.get_var2val(graph)
    return graph_rewriting.rewrite_known(
        graph, "relax.nn.conv2d", lambda call: _convolution(builder, values, call)
    )


def _product(builder: Any, call: Any) -> Any:
    """A product of rows with a matrix, or of stacks of both if the data is rounded already."""
    data, weights = call.args
    sizes, result = graph_rewriting.sizes_of(data), graph_rewriting.sizes_of(call)
    stacked = data.ty.dtype == NARROW and weights.ty.ndim == len(sizes) == 3
    if (
        not dot_product_function.fits(call, BY)
        or sizes[-1] % PAIR
        or not (stacked or weights.ty.ndim == 2 <= len(sizes))
    ):
        return call
    read = *(f"vi{axis}" for axis in range(len(sizes) - 1)), BY.step
    kernel = result[:1] if stacked else ()
    of = dot_product_function.Sums(sizes, result, sizes[-1], read, kernel, stacked)
    return _call(builder, "bf16_matmul", _rounded(data), weights.value.numpy(), of)


def _convolution(builder: Any, values: Mapping[Any, Any], call: Any) -> Any:
    data, weights = call.args
    attrs = call.attrs
    if not graph_rewriting.channels_last(call) or call.ty.dtype != "float32":
        return call
    if 1 < int(attrs.groups) == graph_rewriting.sizes_of(data)[-1]:
        return _depthwise(call)
    if not dot_product_function.fits(call, BY) or any(
        int(number) != 1 for number in (*attrs.dilation, attrs.groups)
    ):
        return call
    if graph_rewriting.sizes_of(data)[-1] % PAIR == 0:
        return _window(builder, call, weights.value.numpy())
    planes = _planes(values, data)
    return call if planes is None else _window_of_planes(builder, call, planes, weights.value.numpy())


def _depthwise(call: Any) -> Any:
    """A depthwise convolution: no sums for the instruction, but half as much to read."""
    factors = _rounded(call.args[0]), relax.const(call.args[1].value.numpy(), NARROW)
    return graph_rewriting.convolution(call, *factors, out_dtype="float32")


def _window(builder: Any, call: Any, weights: Any) -> Any:
    """A convolution whose inputs are pairs at every place of the window."""
    data = call.args[0]
    padded, sizes = graph_rewriting.padded(_rounded(data), graph_rewriting.sizes_of(data), call.attrs.padding)
    down, across = map(int, call.attrs.strides)
    read = "vi0", f"vi1 * {down} + vr0", f"vi2 * {across} + vr1", BY.step
    of = dot_product_function.Sums(sizes, graph_rewriting.sizes_of(call), sizes[-1], read, weights.shape[:2])
    return _call(builder, "bf16_conv2d", padded, weights, of)


def _planes(values: Mapping[Any, Any], data: Any) -> Any | None:
    """The data before the transpose from channel planes, if there was one."""
    transpose = graph_rewriting.call_of(values, data, "relax.permute_dims")
    moved = transpose is not None and tuple(map(int, transpose.attrs.axes or ())) == (0, 2, 3, 1)
    return transpose.args[0] if transpose is not None and moved else None


def _window_of_planes(builder: Any, call: Any, planes: Any, weights: Any) -> Any:
    """A convolution of odd channels, as of a picture: pairs lie along the window's rows, zero-padded."""
    high, wide, channels, _ = weights.shape
    odd = wide % PAIR
    rows = np.pad(weights.transpose(2, 0, 1, 3), ((0, 0), (0, 0), (0, odd), (0, 0)))
    top, left, bottom, right = map(int, call.attrs.padding)
    batch, _, height, width = graph_rewriting.sizes_of(planes)
    sizes = batch, channels, height + top + bottom, width + left + right + odd
    padded = relax.op.nn.pad(_rounded(planes), (0, 0, 0, 0, top, bottom, left, right + odd))
    down, across = map(int, call.attrs.strides)
    read = "vi0", "vr0", f"vi1 * {down} + vr1", f"vi2 * {across} + {BY.step}"
    of = dot_product_function.Sums(sizes, graph_rewriting.sizes_of(call), wide + odd, read, (channels, high))
    return _call(builder, "bf16_conv2d", padded, rows, of)


def _rounded(data: Any) -> Any:
    return data if data.ty.dtype == NARROW else relax.op.astype(data, NARROW)


def _call(builder: Any, name: str, data: Any, weights: Any, of: Any) -> Any:
    return dot_product_function.call(builder, BY, name, data, weights.astype(ml_dtypes.bfloat16), of)
