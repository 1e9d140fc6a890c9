"""What networks are made of, written as exporters write it."""

import math
from collections.abc import Sequence

import numpy as np
from onnx import numpy_helper

from zoo.graph import GraphBuilder

HE = math.sqrt(2)


def convolution(
    g: GraphBuilder,
    x: str,
    name: str,
    channels: tuple[int, int],
    kernel: Sequence[int],
    *,
    stride: int = 1,
    dilation: int = 1,
    group: int = 1,
    pads: Sequence[int] | None = None,
    gain: float = HE,
) -> str:
    """Of any rank; without `pads` the shape stays as the stride leaves it."""
    c_in, c_out = channels
    weight = g.weight(
        f"{name}.weight", (c_out, c_in // group, *kernel), c_in // group * math.prod(kernel), gain
    )
    bias = g.normal(f"{name}.bias", (c_out,), 0.1)
    same = [dilation * (size // 2) for size in kernel] * 2
    return g.op(
        "Conv",
        x,
        weight,
        bias,
        dilations=[dilation] * len(kernel),
        group=group,
        kernel_shape=list(kernel),
        pads=same if pads is None else list(pads),
        strides=[stride] * len(kernel),
    )


def doubling(g: GraphBuilder, x: str, name: str, channels: tuple[int, int], gain: float = HE) -> str:
    """A transposed convolution, 4x4 with stride 2, that doubles height and width."""
    c_in, c_out = channels
    weight = g.weight(f"{name}.weight", (c_in, c_out, 4, 4), c_in * 4, gain)  # four of 16 taps meet an output
    bias = g.normal(f"{name}.bias", (c_out,), 0.1)
    return g.op("ConvTranspose", x, weight, bias, kernel_shape=[4, 4], strides=[2, 2], pads=[1, 1, 1, 1])


def linear(
    g: GraphBuilder, x: str, name: str, features: tuple[int, int], gain: float = 1.0, bias: bool = True
) -> str:
    """A product with stored weights over the last axis."""
    product = g.op("MatMul", x, g.weight(f"{name}.weight", features, features[0], gain))
    return g.op("Add", product, g.normal(f"{name}.bias", features[1:], 0.02)) if bias else product


def layer_norm(g: GraphBuilder, x: str, name: str, width: int) -> str:
    scale = g.constant(f"{name}.weight", np.ones(width, np.float32))
    bias = g.constant(f"{name}.bias", np.zeros(width, np.float32))
    return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-6)


def rms_norm(g: GraphBuilder, x: str, name: str, width: int) -> str:
    mean = g.op("ReduceMean", g.op("Pow", x, scalar(g, 2.0)), axes=[-1], keepdims=1)
    root = g.op("Sqrt", g.op("Add", mean, scalar(g, 1e-6)))
    scale = g.constant(f"{name}.weight", np.ones(width, np.float32))
    return g.op("Mul", scale, g.op("Mul", x, g.op("Div", scalar(g, 1.0), root)))


def group_norm(g: GraphBuilder, x: str, name: str, shape: Sequence[int], groups: int) -> str:
    """As PyTorch writes it: an instance norm of groups, then scale and bias of channels."""
    ones = g.constant(f"{name}.ones", np.ones(groups, np.float32))
    zeros = g.constant(f"{name}.zeros", np.zeros(groups, np.float32))
    grouped = reshape(g, x, (shape[0], groups, -1))
    normed = reshape(g, g.op("InstanceNormalization", grouped, ones, zeros, epsilon=1e-5), shape)
    per_channel = (shape[1], *[1] * (len(shape) - 2))
    scaled = g.op("Mul", normed, g.constant(f"{name}.weight", np.ones(per_channel, np.float32)))
    return g.op("Add", scaled, g.constant(f"{name}.bias", np.zeros(per_channel, np.float32)))


def gelu(g: GraphBuilder, x: str) -> str:
    erf = g.op("Erf", g.op("Div", x, scalar(g, HE)))
    return g.op("Mul", g.op("Mul", x, g.op("Add", erf, scalar(g, 1.0))), scalar(g, 0.5))


def silu(g: GraphBuilder, x: str) -> str:
    return g.op("Mul", x, g.op("Sigmoid", x))


def reshape(g: GraphBuilder, x: str, shape: Sequence[int]) -> str:
    return g.op("Reshape", x, g.constant(f"shape_of_{x}", np.array(shape, np.int64)))


def scalar(g: GraphBuilder, value: float) -> str:
    """A constant node where it is used, as exporters write it."""
    return g.op("Constant", value=numpy_helper.from_array(np.array(value, np.float32)))


def attention(g: GraphBuilder, x: str, name: str, tokens: int, width: int, heads: int) -> str:
    """Of every token to every token; keys come out already transposed."""
    split = (1, tokens, heads, width // heads)

    def part(role: str, perm: list[int]) -> str:
        value = linear(g, x, f"{name}.{role}", (width, width))
        return g.op("Transpose", reshape(g, value, split), perm=perm)

    query, key, value = part("query", [0, 2, 1, 3]), part("key", [0, 2, 3, 1]), part("value", [0, 2, 1, 3])
    scores = g.op("Mul", g.op("MatMul", query, key), scalar(g, 1 / math.sqrt(width // heads)))
    context = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
    merged = reshape(g, g.op("Transpose", context, perm=[0, 2, 1, 3]), (1, tokens, width))
    return linear(g, merged, f"{name}.output", (width, width))


def encoder_layer(
    g: GraphBuilder, x: str, name: str, tokens: int, width: int, heads: int, hidden: int
) -> str:
    """Attention and a perceptron, each behind a layer norm and beside the identity."""
    inner = layer_norm(g, x, f"{name}.norm1", width)
    x = g.op("Add", x, attention(g, inner, f"{name}.attention", tokens, width, heads))
    inner = layer_norm(g, x, f"{name}.norm2", width)
    inner = gelu(g, linear(g, inner, f"{name}.ffn1", (width, hidden)))
    return g.op("Add", x, linear(g, inner, f"{name}.ffn2", (hidden, width)))
