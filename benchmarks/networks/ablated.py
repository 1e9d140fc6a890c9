"""Networks of few tasks, so that an ablation of all arms and seeds ends; nobody looks at them otherwise."""

from collections.abc import Callable

import numpy as np
from onnx import ModelProto

from benchmarks.networks import layers
from benchmarks.networks.layers import convolution, linear, rms_norm, silu
from zoo.graph import GraphBuilder

CLASSES = 100


def _scores(g: GraphBuilder, x: str, channels: int) -> ModelProto:
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.gemm(x, "classifier", (channels, CLASSES))
    return g.build("logits", (1, CLASSES))


def _unit(g: GraphBuilder, x: str, name: str, channels: tuple[int, int], size: int, group: int = 1) -> str:
    return g.op("Relu", convolution(g, x, name, channels, (size, size), group=group))


def dense_block(seed: int) -> ModelProto:
    """Two layers that read all before them (Huang et al., 2016)."""
    g, channels, growth = GraphBuilder("dense-block", seed), 96, 40
    x = g.input("input", (1, channels, 24, 24))
    for layer in range(2):
        new = _unit(g, x, f"{layer}.narrow", (channels, 2 * growth), 1)
        x = g.op("Concat", x, _unit(g, new, f"{layer}.wide", (2 * growth, growth), 3), axis=1)
        channels += growth
    return _scores(g, x, channels)


def fire(seed: int) -> ModelProto:
    """Two fire modules: squeezed, then two windows beside each other (Iandola et al., 2016)."""
    g, channels = GraphBuilder("fire", seed), 168
    x = g.input("input", (1, channels, 30, 30))
    for module in range(2):
        narrow = _unit(g, x, f"{module}.squeeze", (channels, 28), 1)
        sides = [_unit(g, narrow, f"{module}.expand{size}", (28, 84), size) for size in (1, 3)]
        x = g.op("Concat", *sides, axis=1)
    return _scores(g, x, channels)


def decoder(seed: int) -> ModelProto:
    """One layer of a decoder over 96 tokens: a causal mask, a gated perceptron (Touvron et al., 2023)."""
    g, tokens, width, heads, hidden = GraphBuilder("decoder", seed), 96, 320, 5, 880
    x = g.input("hidden", (1, tokens, width))
    x = g.op("Add", x, _causal(g, rms_norm(g, x, "norm1", width), tokens, width, heads))
    inner = rms_norm(g, x, "norm2", width)
    gate = silu(g, linear(g, inner, "gate", (width, hidden), bias=False))
    inner = g.op("Mul", gate, linear(g, inner, "up", (width, hidden), bias=False))
    g.op("Add", x, linear(g, inner, "down", (hidden, width), bias=False))
    return g.build("next_hidden", (1, tokens, width))


def _causal(g: GraphBuilder, x: str, tokens: int, width: int, heads: int) -> str:
    split = (1, tokens, heads, width // heads)
    parts = {
        role: g.op("Transpose", layers.reshape(g, linear(g, x, role, (width, width)), split), perm=perm)
        for role, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
    }
    mask = np.triu(np.full((tokens, tokens), np.finfo(np.float32).min, np.float32), 1)
    scores = g.op("Div", g.op("MatMul", parts["query"], parts["key"]), layers.scalar(g, 8.0))
    weights = g.op("Softmax", g.op("Add", scores, g.constant("mask", mask)), axis=-1)
    merged = g.op("Transpose", g.op("MatMul", weights, parts["value"]), perm=[0, 2, 1, 3])
    return linear(g, layers.reshape(g, merged, (1, tokens, width)), "output", (width, width))


def bottlenecks(seed: int) -> ModelProto:
    """Two inverted bottlenecks with a window of 5 (Sandler et al., 2018)."""
    g, channels, wide = GraphBuilder("bottlenecks", seed), 40, 200
    x = g.input("input", (1, channels, 28, 28))
    for block in range(2):
        inner = _unit(g, x, f"{block}.wide", (channels, wide), 1)
        inner = _unit(g, inner, f"{block}.depthwise", (wide, wide), 5, wide)
        x = g.op("Add", x, convolution(g, inner, f"{block}.narrow", (wide, channels), (1, 1), gain=1.0))
    return _scores(g, x, channels)


def mixer(seed: int) -> ModelProto:
    """A block that mixes 144 patches, then channels (Tolstikhin et al., 2021)."""
    g, patches, width = GraphBuilder("mixer", seed), 144, 256
    x = g.input("patches", (1, patches, width))
    turned = g.op("Transpose", layers.layer_norm(g, x, "norm1", width), perm=[0, 2, 1])
    turned = linear(g, layers.gelu(g, linear(g, turned, "rows1", (patches, 72))), "rows2", (72, patches))
    x = g.op("Add", x, g.op("Transpose", turned, perm=[0, 2, 1]))
    inner = layers.gelu(g, linear(g, layers.layer_norm(g, x, "norm2", width), "columns1", (width, 1024)))
    g.op("Add", x, linear(g, inner, "columns2", (1024, width)))
    return g.build("mixed", (1, patches, width))


ABLATED: dict[str, Callable[[int], ModelProto]] = {
    "dense-block": dense_block,
    "fire": fire,
    "decoder": decoder,
    "bottlenecks": bottlenecks,
    "mixer": mixer,
}
"""By name; with `recurrent` the six of the ablation, two of them of concatenations."""
