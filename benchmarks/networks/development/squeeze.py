"""SqueezeNet 1.1 for one image of 224 x 224: small convolutions, most of one pixel (Iandola et al., 2016)."""

from onnx import ModelProto

from benchmarks.networks.layers import convolution
from zoo.graph import GraphBuilder

FIRES = (
    (16, 64),
    (16, 64),
    (32, 128),
    (32, 128),
    (48, 192),
    (48, 192),
    (64, 256),
    (64, 256),
)  # squeezed, each half
POOLED = (0, 2, 4)  # before these
CLASSES = 1000


def _pooled(g: GraphBuilder, x: str) -> str:
    return g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])


def _fire(g: GraphBuilder, x: str, name: str, c_in: int, squeezed: int, half: int) -> str:
    x = g.op("Relu", convolution(g, x, f"{name}.squeeze", (c_in, squeezed), (1, 1)))
    point = g.op("Relu", convolution(g, x, f"{name}.point", (squeezed, half), (1, 1)))
    wide = g.op("Relu", convolution(g, x, f"{name}.wide", (squeezed, half), (3, 3)))
    return g.op("Concat", point, wide, axis=1)


def squeeze(seed: int) -> ModelProto:
    g = GraphBuilder("squeeze", seed)
    x = g.input("input", (1, 3, 224, 224))
    x = g.op("Relu", convolution(g, x, "stem", (3, 64), (3, 3), stride=2, pads=(0,) * 4))
    c_in = 64
    for i, (squeezed, half) in enumerate(FIRES):
        x = _fire(g, _pooled(g, x) if i in POOLED else x, f"fire{i}", c_in, squeezed, half)
        c_in = 2 * half
    x = g.op("Relu", convolution(g, x, "classifier", (c_in, CLASSES), (1, 1), gain=1.0))
    g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    return g.build("logits", (1, CLASSES))
