"""Build the tensor program of each task, which the product schedules."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import tvm
from tvm import te, topi
from tvm.tirx import all as both
from tvm.tirx import const, if_then_else

from benchmarks.gpu.tasks import (
    BATCH,
    BLOCK,
    CHANNELS_LAST,
    CODED,
    CONVOLUTION,
    DEPTHWISE,
    EPSILON,
    FUSED,
    NORM,
    ONE_KERNEL,
    POOL,
    PRODUCT,
    SOFTMAX,
    SUM,
    TF32,
    TRANSPOSE,
    TRANSPOSED,
    Task,
    operands,
)
from mallorn.graphc.quant.keep_block_quantized_weights import (
    BlockQuantizedWeights,
    DecodedProduct,
    product_function,
)
from mallorn.graphc.quant.tf32_products import Tf32Products
from mallorn.kinds.cuda.graph.fuse_short_attention import ShortAttention, short_attention_function


def module_of(task: Task) -> Any:
    """Return a module with the task's program as its function `main`."""
    if task.kind == CODED:
        function = _coded_product(task)
    elif task.kind == ONE_KERNEL:
        function = _attention_in_one_kernel(task)
    else:
        *inputs, _ = operands(task)
        arguments = [te.placeholder(each.shape, each.dtype, f"p{place}") for place, each in enumerate(inputs)]
        function = te.create_prim_func([*arguments, _RESULTS[task.kind](task, *arguments)])
    module = tvm.IRModule({"main": function.with_attr({"global_symbol": "main", "tirx.noalias": True})})
    return Tf32Products()(module) if task.kind == TF32 else module


def _coded_product(task: Task) -> Any:
    """Return the function that `DecodeWeightsInProducts` makes of a product, with a common zero point."""
    m, n, k, bits = task.sizes
    largest, zero = np.uint8((1 << bits) - 1), np.uint8(1 << bits - 1)
    scales = np.ones((k // BLOCK, n), "float16")
    weights = BlockQuantizedWeights(
        np.broadcast_to(largest, (k, n)), scales, np.broadcast_to(zero, scales.shape), 0
    )
    return product_function(DecodedProduct(weights, (m,), task.dtype), str(scales.dtype))


def _attention_in_one_kernel(task: Task) -> Any:
    heads, tokens, width = task.sizes
    queries, keys, values, result = (["a0", axis, "d"] for axis in "ijji")
    sizes = {"a0": heads, "i": tokens, "j": tokens, "d": width}
    facts = ShortAttention(sizes, queries, keys, values, None, result, width**-0.5, task.dtype)
    return short_attention_function(facts)


def _product(task: Task, a: Any, b: Any) -> Any:
    m, n, k = task.sizes
    r = te.reduce_axis((0, k), "r")

    def weight(j: Any) -> Any:
        return b[j, r] if task.kind == TRANSPOSED else b[r, j]

    return te.compute(
        (m, n), lambda i, j: te.sum(a[i, r].astype(task.sums) * weight(j).astype(task.sums), r), "c"
    )


def _fused_product(task: Task, a: Any, b: Any, bias: Any) -> Any:
    sums, zero = _product(task, a, b), const(0, task.sums)
    return te.compute(
        sums.shape, lambda i, j: tvm.tirx.max(sums[i, j] + bias[j], zero).astype(task.result), "y"
    )


def _convolution(task: Task, x: Any, w: Any) -> Any:
    images, height, channels_in, channels_out = task.sizes
    border = te.compute(
        (images, height + 2, height + 2, channels_in),
        lambda n, i, j, c: if_then_else(
            both(i >= 1, i <= height, j >= 1, j <= height), x[n, i - 1, j - 1, c], const(0, task.dtype)
        ),
        "border",
    )
    di, dj, r = (
        te.reduce_axis((0, 3), "di"),
        te.reduce_axis((0, 3), "dj"),
        te.reduce_axis((0, channels_in), "r"),
    )
    return te.compute(
        (images, height, height, channels_out),
        lambda n, i, j, c: te.sum(
            border[n, i + di, j + dj, r].astype(task.sums) * w[di, dj, r, c].astype(task.sums), [di, dj, r]
        ),
        "c",
    )


def _depthwise(task: Task, x: Any, w: Any) -> Any:
    images, channels, height = task.sizes
    border = te.compute(
        (images, channels, height + 2, height + 2),
        lambda n, c, i, j: if_then_else(
            both(i >= 1, i <= height, j >= 1, j <= height), x[n, c, i - 1, j - 1], const(0, task.dtype)
        ),
        "border",
    )
    di, dj = te.reduce_axis((0, 3), "di"), te.reduce_axis((0, 3), "dj")
    return te.compute(
        (images, channels, height, height),
        lambda n, c, i, j: te.sum(border[n, c, i + di, j + dj] * w[c, di, dj], [di, dj]),
        "c",
    )


def _attention(task: Task, q: Any, k: Any, v: Any) -> Any:
    heads, tokens, width = task.sizes
    r, s = te.reduce_axis((0, width), "r"), te.reduce_axis((0, tokens), "s")
    scores = te.compute((heads, tokens, tokens), lambda h, i, j: te.sum(q[h, i, r] * k[h, j, r], r), "scores")
    scaled = te.compute(
        (heads, tokens, tokens), lambda h, i, j: scores[h, i, j] * const(width**-0.5, task.dtype), "scaled"
    )
    shares = topi.nn.softmax(scaled, axis=2)
    return te.compute((heads, tokens, width), lambda h, i, j: te.sum(shares[h, i, s] * v[h, s, j], s), "c")


_RESULTS: Final[Mapping[str, Callable[..., Any]]] = {
    **dict.fromkeys((PRODUCT, TRANSPOSED, TF32), _product),
    FUSED: _fused_product,
    BATCH: _attention,
    CONVOLUTION: _convolution,
    DEPTHWISE: _depthwise,
    CHANNELS_LAST: lambda task, x, w: topi.nn.depthwise_conv2d_nhwc(x, w, 1, 1, 1, out_dtype=task.sums),
    SOFTMAX: lambda _, x: topi.nn.softmax(x),
    NORM: lambda _, x, scale, shift: topi.nn.layer_norm(x, scale, shift, [1], EPSILON),
    TRANSPOSE: lambda _, x: topi.transpose(x),
    SUM: lambda _, left, right: topi.add(left, right),
    POOL: lambda _, x: topi.nn.pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1, 1, 1], "max", layout="NHWC"),
}
