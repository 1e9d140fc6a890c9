"""Small and odd shapes, as networks have them towards their end: no model, but tasks for the oracle."""

from onnx import ModelProto

from benchmarks.networks.layers import attention, convolution, layer_norm, linear, reshape
from zoo.graph import GraphBuilder

FIRST, GROWS, NARROW = 288, 32, 128
SIZE, WIDE, HEADS, CLASSES = 7, 160, 5, 1000
ROWS = SIZE * SIZE


def odd(seed: int) -> ModelProto:
    """Channels that grow by 32, pictures of 7x7, 49 rows, 1,000 columns."""
    g = GraphBuilder("odd", seed)
    x = g.input("input", (1, FIRST, 2 * SIZE, 2 * SIZE))
    for channels in (FIRST, FIRST + GROWS):
        x = g.op("Concat", x, _grown(g, x, f"grow{channels}", channels), axis=1)
    x = g.op("Relu", convolution(g, x, "halved", (FIRST + 2 * GROWS, WIDE), (2, 2), stride=2, pads=(0,) * 4))
    x = convolution(g, x, "depthwise", (WIDE, WIDE), (SIZE, SIZE), group=WIDE)
    x = g.op("Relu", convolution(g, x, "point", (WIDE, 2 * WIDE), (1, 1)))
    x = g.op("Transpose", reshape(g, x, (1, 2 * WIDE, ROWS)), perm=[0, 2, 1])
    x = g.op("Add", x, attention(g, layer_norm(g, x, "norm", 2 * WIDE), "attention", ROWS, 2 * WIDE, HEADS))
    mean = g.op("ReduceMean", x, axes=[1], keepdims=0)
    linear(g, mean, "classifier", (2 * WIDE, CLASSES))
    return g.build("logits", (1, CLASSES))


def _grown(g: GraphBuilder, x: str, name: str, channels: int) -> str:
    """As DenseNet's layers: narrow, then a window."""
    x = g.op("Relu", convolution(g, x, f"{name}.narrow", (channels, NARROW), (1, 1)))
    return convolution(g, x, f"{name}.wide", (NARROW, GROWS), (3, 3))
