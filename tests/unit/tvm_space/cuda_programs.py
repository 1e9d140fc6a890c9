"""Programs of every kind that a GPU is given, as the text in which programs travel."""

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import tvm
from tvm import te, tirx, topi

from mallorn.graphc.quant.keep_block_quantized_weights import (
    BlockQuantizedWeights,
    DecodedProduct,
    product_function,
)
from mallorn.graphc.quant.tf32_products import Tf32Products
from mallorn.kinds.cuda.graph.fuse_short_attention import ShortAttention, short_attention_function
from tests.unit.tvm_space.programs import text_of

ARCHS: Final = ("sm_80", "sm_89", "sm_90a")


def target(arch: str) -> str:
    """A CUDA target as its canonical text has it."""
    limits = {
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 48 << 10,
        "registers_per_block": 65536,
        "thread_warp_size": 32,
        "l2_cache_size_bytes": 40 << 20,
    }
    return json.dumps({"kind": "cuda", "arch": arch, **limits})


def product(m: int, n: int, k: int, dtype: str = "float32", sums: str = "", *, relu: bool = False) -> str:
    a, b = te.placeholder((m, k), dtype, "a"), te.placeholder((k, n), dtype, "b")
    r, sums = te.reduce_axis((0, k), "r"), sums or dtype
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype(sums) * b[r, j].astype(sums), r), "c")
    if not relu:
        return text_of(a, b, c)
    bias = te.placeholder((n,), dtype, "bias")
    shown = te.compute(
        (m, n), lambda i, j: te.max(c[i, j].astype(dtype) + bias[j], tirx.const(0, dtype)), "o"
    )
    return text_of(a, b, bias, shown)


def in_tf32(tir: str) -> str:
    """The program with factors of float32 products rounded to TF32."""
    return str(tvm.ir.save_json(Tf32Products()(tvm.ir.load_json(tir))))


def product_with_vector(n: int, k: int, dtype: str) -> str:
    a, b, r = (
        te.placeholder((1, k), dtype, "a"),
        te.placeholder((n, k), dtype, "b"),
        te.reduce_axis((0, k), "r"),
    )
    one = te.compute(
        (1, n), lambda i, j: te.sum(a[i, r].astype("float32") * b[j, r].astype("float32"), r), "c"
    )
    return text_of(a, b, one)


def packed_product(rows: int, outputs: int, inputs: int, bits: int, dtype: str = "float16") -> str:
    """A product whose weights have few bits and a scale for each 32 inputs."""
    scales = np.ones((inputs // 32, outputs), "float16")
    data, zero = np.full((inputs, outputs), (1 << bits) - 1, "uint8"), np.full_like(scales, 1 << bits - 1)
    weights = BlockQuantizedWeights(data, scales, zero.astype("uint8"), 0)
    function = product_function(DecodedProduct(weights, (rows,), dtype), "float16")
    return str(tvm.ir.save_json(tvm.IRModule({"main": function.with_attr("global_symbol", "main")})))


def attention_scores(heads: int, tokens: int, width: int, dtype: str) -> str:
    q, k = (te.placeholder((heads, tokens, width), dtype, name) for name in "qk")
    r = te.reduce_axis((0, width), "r")
    scores = te.compute(
        (heads, tokens, tokens),
        lambda h, i, j: te.sum(q[h, i, r].astype("float32") * k[h, j, r].astype("float32"), r),
        "s",
    )
    return text_of(q, k, scores)


def short_attention(tokens: int, width: int, dtype: str = "float16", *, masked: bool = False) -> str:
    """Two heads of attention, whose tensors have the order [1, tokens, heads, width]."""
    facts = ShortAttention(
        sizes={"a0": 1, "a1": 2, "i": tokens, "j": tokens, "d": width},
        queries=["a0", "i", "a1", "d"],
        keys=["a0", "j", "a1", "d"],
        values=["a0", "j", "a1", "d"],
        mask=["a0", "1", "1", "j"] if masked else None,
        result=["a0", "i", "a1", "d"],
        scale=width**-0.5,
        dtype=dtype,
    )
    function = short_attention_function(facts).with_attr("global_symbol", "main")
    return str(tvm.ir.save_json(tvm.IRModule({"main": function})))


def convolution(
    channels: int, size: int, out: int, kernel: int, dtype: str = "float32", batch: int = 1
) -> str:
    x = te.placeholder((batch, channels, size, size), dtype, "x")
    w = te.placeholder((out, channels, kernel, kernel), dtype, "w")
    rc, ry, rx = (te.reduce_axis((0, extent)) for extent in (channels, kernel, kernel))
    pad = _padded(x, kernel // 2, dtype)
    y = te.compute(
        (batch, out, size, size),
        lambda b, o, i, j: te.sum(pad[b, rc, i + ry, j + rx] * w[o, rc, ry, rx], [rc, ry, rx]),
        "y",
    )
    return text_of(x, w, te.compute(y.shape, lambda *at: te.max(y(*at), tirx.const(0, dtype)), "o"))


def depthwise(channels: int, size: int, kernel: int) -> str:
    x, w = (
        te.placeholder((1, channels, size, size), name="x"),
        te.placeholder((channels, kernel, kernel), name="w"),
    )
    ry, rx = (te.reduce_axis((0, kernel)) for _ in range(2))
    pad = _padded(x, kernel // 2, "float32")
    y = te.compute(
        (1, channels, size, size),
        lambda b, c, i, j: te.sum(pad[b, c, i + ry, j + rx] * w[c, ry, rx], [ry, rx]),
        "y",
    )
    return text_of(x, w, y)


def depthwise_channels_last(
    channels: int, size: int, kernel: int, stride: int = 1, dtype: str = "float32"
) -> str:
    """A padded convolution of each channel by itself, with a bias and the larger of that and 0."""
    by, zero = kernel // 2, tirx.const(0, dtype)
    x, w = (
        te.placeholder((1, size, size, channels), dtype, "x"),
        te.placeholder((kernel, kernel, channels), dtype),
    )
    bias, ry, rx = (
        te.placeholder((channels,), dtype, "bias"),
        *(te.reduce_axis((0, kernel)) for _ in range(2)),
    )

    def element(b: Any, i: Any, j: Any, c: Any) -> Any:
        inside = tirx.all(i >= by, i < size + by, j >= by, j < size + by)
        return tirx.if_then_else(inside, x[b, i - by, j - by, c], zero)

    pad, side = (
        te.compute((1, size + 2 * by, size + 2 * by, channels), element, "pad"),
        (size - 1) // stride + 1,
    )
    y = te.compute(
        (1, side, side, channels),
        lambda b, i, j, c: te.sum(pad[b, i * stride + ry, j * stride + rx, c] * w[ry, rx, c], [ry, rx]),
        "y",
    )
    return text_of(x, w, bias, te.compute(y.shape, lambda *at: te.max(y(*at) + bias[at[-1]], zero), "o"))


def softmax(rows: int, columns: int) -> str:
    a, r, s = te.placeholder((rows, columns), name="a"), *(te.reduce_axis((0, columns)) for _ in range(2))
    top = te.compute((rows,), lambda i: te.max(a[i, r], r), "top")
    e = te.compute((rows, columns), lambda i, j: tirx.exp(a[i, j] - top[i]), "e")
    total = te.compute((rows,), lambda i: te.sum(e[i, s], s), "total")
    return text_of(a, te.compute((rows, columns), lambda i, j: e[i, j] / total[i], "o"))


def layer_norm(rows: int, columns: int) -> str:
    a, g = te.placeholder((rows, columns), name="a"), te.placeholder((columns,), name="g")
    r, s = (te.reduce_axis((0, columns)) for _ in range(2))
    mean = te.compute((rows,), lambda i: te.sum(a[i, r] / columns, r), "mean")
    spread = te.compute((rows,), lambda i: te.sum((a[i, s] - mean[i]) * (a[i, s] - mean[i]), s), "spread")
    shown = te.compute((rows, columns), lambda i, j: (a[i, j] - mean[i]) * tirx.rsqrt(spread[i]) * g[j], "o")
    return text_of(a, g, shown)


def elementwise(count: int) -> str:
    a, b = te.placeholder((count,), name="a"), te.placeholder((count,), name="b")
    return text_of(a, b, te.compute((count,), lambda i: tirx.exp(a[i]) + b[i], "c"))


def transpose(rows: int, columns: int) -> str:
    a = te.placeholder((rows, columns), name="a")
    return text_of(a, te.compute((columns, rows), lambda i, j: a[j, i], "c"))


def mover(
    shapes: list[tuple[int, ...]],
    result: tuple[int, ...],
    element: Callable[..., Any],
    dtype: str = "float32",
) -> str:
    """A program of one element-wise block; `element` takes the inputs and the place."""
    inputs = [te.placeholder(shape, dtype, name) for shape, name in zip(shapes, "abc", strict=False)]
    return text_of(*inputs, te.compute(result, lambda *at: element(*inputs, *at), "o"))


def sums(rows: int, columns: int, *, of_rows: bool) -> str:
    a, r = te.placeholder((rows, columns), name="a"), te.reduce_axis((0, columns if of_rows else rows))
    count = rows if of_rows else columns
    return text_of(a, te.compute((count,), lambda i: te.sum(a[i, r] if of_rows else a[r, i], r), "c"))


def pooling(channels: int, size: int) -> str:
    x, ry, rx = te.placeholder((channels, size, size), name="x"), *(te.reduce_axis((0, 2)) for _ in range(2))
    half = (channels, size // 2, size // 2)
    return text_of(x, te.compute(half, lambda c, i, j: te.max(x[c, 2 * i + ry, 2 * j + rx], [ry, rx]), "y"))


def means_of_windows(channels: int, size: int) -> str:
    x = te.placeholder((1, channels, size, size), name="x")
    return text_of(x, topi.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], "avg"))


def means_of_images(channels: int, size: int) -> str:
    x, ry, rx = (
        te.placeholder((channels, size, size), name="x"),
        *(te.reduce_axis((0, size)) for _ in range(2)),
    )
    total = te.compute((channels,), lambda c: te.sum(x[c, ry, rx], [ry, rx]), "total")
    return text_of(x, te.compute((channels,), lambda c: total[c] / (size * size), "mean"))


PROGRAMS: Final[dict[str, Callable[[], str]]] = {
    "fp32 product": lambda: product(512, 512, 512),
    "fp32 product of odd sizes": lambda: product(1000, 777, 1234),
    "fp32 product of prime sizes": lambda: product(997, 509, 127),
    "narrow fp32 product": lambda: product(16, 4096, 4096),
    "fp16 product": lambda: product(1024, 1024, 1024, "float16"),
    "fp16 product, sums in fp32": lambda: product(1024, 1024, 1024, "float16", "float32"),
    "fp16 product of odd sizes": lambda: product(1000, 777, 1234, "float16", "float32"),
    "narrow fp16 product": lambda: product(16, 4096, 4096, "float16", "float32"),
    "fp16 product with an epilogue": lambda: product(512, 512, 512, "float16", "float32", relu=True),
    "int8 product": lambda: product(256, 256, 256, "int8", "int32"),
    "tf32 product": lambda: in_tf32(product(1024, 1024, 1024)),
    "tf32 convolution": lambda: in_tf32(convolution(64, 56, 64, 3)),
    "fp16 product with a vector": lambda: product_with_vector(4096, 4096, "float16"),
    "fp32 product with a vector": lambda: product_with_vector(4096, 4096, "float32"),
    "fp32 attention scores": lambda: attention_scores(12, 128, 64, "float32"),
    "fp16 attention scores": lambda: attention_scores(12, 128, 64, "float16"),
    "fp32 convolution": lambda: convolution(64, 56, 64, 3),
    "fp32 pointwise convolution": lambda: convolution(256, 14, 1024, 1),
    "fp16 convolution": lambda: convolution(64, 56, 64, 3, "float16", batch=4),
    "depthwise convolution": lambda: depthwise(96, 56, 3),
    "depthwise convolution, channels last": lambda: depthwise_channels_last(144, 56, 3, 2),
    "softmax": lambda: softmax(4096, 1024),
    "layer norm": lambda: layer_norm(4096, 768),
    "elementwise": lambda: elementwise(1 << 20),
    "transpose": lambda: transpose(1024, 1024),
    "sums of rows": lambda: sums(4096, 1024, of_rows=True),
    "sums of columns": lambda: sums(4096, 1024, of_rows=False),
    "means of images": lambda: means_of_images(1280, 7),
    "pooling": lambda: pooling(64, 112),
}

# The same kinds at sizes that an emulator runs in a second; some sizes are no multiples of a tile's.
SMALL_PROGRAMS: Final[dict[str, Callable[[], str]]] = {
    "fp32 product": lambda: product(64, 64, 64),
    "fp32 product of odd sizes": lambda: product(50, 42, 54),
    "fp32 product of prime sizes": lambda: product(37, 41, 31),
    "narrow fp32 product": lambda: product(4, 128, 128),
    "fp16 product": lambda: product(128, 128, 256, "float16"),
    "fp16 product, sums in fp32": lambda: product(128, 128, 256, "float16", "float32"),
    "fp16 product of odd sizes": lambda: product(50, 42, 54, "float16", "float32"),
    "narrow fp16 product": lambda: product(16, 128, 128, "float16", "float32"),
    "fp16 product with an epilogue": lambda: product(64, 64, 64, "float16", "float32", relu=True),
    "int8 product": lambda: product(64, 64, 64, "int8", "int32"),
    "tf32 product": lambda: in_tf32(product(64, 64, 64)),
    "tf32 convolution": lambda: in_tf32(convolution(8, 14, 16, 3)),
    "fp16 product with a vector": lambda: product_with_vector(128, 256, "float16"),
    "fp32 product with a vector": lambda: product_with_vector(128, 256, "float32"),
    "fp32 attention scores": lambda: attention_scores(2, 32, 16, "float32"),
    "fp16 attention scores": lambda: attention_scores(2, 32, 16, "float16"),
    "fp32 convolution": lambda: convolution(8, 14, 16, 3),
    "fp32 pointwise convolution": lambda: convolution(16, 7, 32, 1),
    "fp16 convolution": lambda: convolution(16, 8, 32, 3, "float16", batch=2),
    "depthwise convolution": lambda: depthwise(8, 14, 3),
    "depthwise convolution, channels last": lambda: depthwise_channels_last(16, 9, 3, 2),
    "softmax": lambda: softmax(16, 256),
    "layer norm": lambda: layer_norm(16, 192),
    "elementwise": lambda: elementwise(1 << 10),
    "transpose": lambda: transpose(64, 64),
    "sums of rows": lambda: sums(16, 256, of_rows=True),
    "sums of columns": lambda: sums(256, 64, of_rows=False),
    "means of images": lambda: means_of_images(32, 7),
    "pooling": lambda: pooling(8, 16),
}


def _padded(x: Any, by: int, dtype: str) -> Any:
    if not by:
        return x
    batch, channels, size, _ = x.shape

    def element(b: Any, c: Any, i: Any, j: Any) -> Any:
        inside = tirx.all(i >= by, i < size + by, j >= by, j < size + by)
        return tirx.if_then_else(inside, x[b, c, i - by, j - by], tirx.const(0, dtype))

    return te.compute((batch, channels, size + 2 * by, size + 2 * by), element, "pad")
