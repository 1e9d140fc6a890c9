"""A DenseNet for one image of 224 x 224: every layer reads all before it (Huang et al., 2016)."""

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import convolution
from zoo.graph import GraphBuilder

GROWTH, BLOCKS, CLASSES = 24, (4, 6, 8, 6), 1000


def _normed(g: GraphBuilder, x: str, name: str, channels: int) -> str:
    """A batch norm in front of its convolution cannot be folded into it."""
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    parts = {"weight": ones, "bias": zeros, "mean": zeros, "var": ones}
    names = [g.constant(f"{name}.{part}", values) for part, values in parts.items()]
    return g.op("Relu", g.op("BatchNormalization", x, *names, epsilon=1e-5))


def _layer(g: GraphBuilder, x: str, name: str, channels: int) -> str:
    wide = (channels, 4 * GROWTH)
    new = convolution(g, _normed(g, x, f"{name}.norm1", channels), f"{name}.1", wide, (1, 1))
    new = _normed(g, new, f"{name}.norm2", wide[1])
    return g.op("Concat", x, convolution(g, new, f"{name}.2", (wide[1], GROWTH), (3, 3)), axis=1)


def _halved(g: GraphBuilder, x: str, name: str, channels: int) -> str:
    x = _normed(g, x, f"{name}.norm", channels)
    x = convolution(g, x, name, (channels, channels // 2), (1, 1))
    return g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])


def densenet(seed: int) -> ModelProto:
    g = GraphBuilder("densenet", seed)
    channels = 2 * GROWTH
    x = g.input("input", (1, 3, 224, 224))
    x = g.op("Relu", convolution(g, x, "stem", (3, channels), (7, 7), stride=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    for i, layers in enumerate(BLOCKS):
        for j in range(layers):
            x = _layer(g, x, f"block{i}.{j}", channels)
            channels += GROWTH
        if i < len(BLOCKS) - 1:
            x, channels = _halved(g, x, f"half{i}", channels), channels // 2
    x = g.op("GlobalAveragePool", _normed(g, x, "norm", channels))
    g.gemm(g.op("Flatten", x, axis=1), "classifier", (channels, CLASSES))
    return g.build("logits", (1, CLASSES))
