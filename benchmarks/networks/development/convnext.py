"""A small ConvNeXt for one image of 224 x 224 (Liu et al., 2022)."""

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import convolution, gelu, layer_norm, linear
from zoo.graph import GraphBuilder

WIDTHS, DEPTHS, CLASSES = (48, 96, 192, 384), (2, 2, 4, 2), 1000


def _block(g: GraphBuilder, x: str, name: str, width: int) -> str:
    """Each channel by itself over 7 x 7, then a perceptron over the channels of each pixel."""
    branch = convolution(g, x, f"{name}.depthwise", (width, width), (7, 7), group=width, gain=1.0)
    branch = layer_norm(g, g.op("Transpose", branch, perm=[0, 2, 3, 1]), f"{name}.norm", width)
    branch = linear(
        g,
        gelu(g, linear(g, branch, f"{name}.wide", (width, 4 * width))),
        f"{name}.narrow",
        (4 * width, width),
    )
    branch = g.op("Mul", branch, g.constant(f"{name}.scale", np.full(width, 0.5, np.float32)))
    return g.op("Add", x, g.op("Transpose", branch, perm=[0, 3, 1, 2]))


def _normed(g: GraphBuilder, x: str, name: str, width: int) -> str:
    rows = layer_norm(g, g.op("Transpose", x, perm=[0, 2, 3, 1]), name, width)
    return g.op("Transpose", rows, perm=[0, 3, 1, 2])


def convnext(seed: int) -> ModelProto:
    g = GraphBuilder("convnext", seed)
    x = g.input("input", (1, 3, 224, 224))
    x = convolution(g, x, "stem", (3, WIDTHS[0]), (4, 4), stride=4, pads=(0,) * 4, gain=1.0)
    x, c_in = _normed(g, x, "stem.norm", WIDTHS[0]), WIDTHS[0]
    for i, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
        if i:
            x = _normed(g, x, f"half{i}.norm", c_in)
            x = convolution(g, x, f"half{i}", (c_in, width), (2, 2), stride=2, pads=(0,) * 4, gain=1.0)
        for j in range(depth):
            x = _block(g, x, f"stage{i}.{j}", width)
        c_in = width
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.gemm(layer_norm(g, x, "norm", c_in), "classifier", (c_in, CLASSES))
    return g.build("logits", (1, CLASSES))
