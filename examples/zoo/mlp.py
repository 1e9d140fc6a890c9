"""A multilayer perceptron, 784-512-256-10, on batches of 64."""

import itertools
import math

from onnx import ModelProto

from zoo.graph import GraphBuilder

BATCH = 64
WIDTHS = (784, 512, 256, 10)


def mlp(seed: int) -> ModelProto:
    """Build the perceptron with ReLU between its layers."""
    g = GraphBuilder("mlp", seed)
    x = g.input("input", (BATCH, WIDTHS[0]))
    hidden = list(itertools.pairwise(WIDTHS[:-1]))
    for i, features in enumerate(hidden, start=1):
        x = g.op("Relu", g.gemm(x, f"fc{i}", features, gain=math.sqrt(2)))
    g.gemm(x, f"fc{len(hidden) + 1}", WIDTHS[-2:])
    return g.build("logits", (BATCH, WIDTHS[-1]))
