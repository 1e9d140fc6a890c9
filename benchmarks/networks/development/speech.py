"""Two seconds of sound: strided 1-d convolutions, then attention (wav2vec 2.0, Baevski et al., 2020)."""

from onnx import ModelProto

from benchmarks.networks.layers import convolution, encoder_layer, gelu, group_norm, layer_norm, linear
from zoo.graph import GraphBuilder

SAMPLES, CHANNELS, WIDTH, LAYERS = 32000, 256, 256, 3
STEPS = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))  # kernel, stride


def _frames(g: GraphBuilder, x: str) -> tuple[str, int]:
    length, c_in = SAMPLES, 1
    for i, (kernel, stride) in enumerate(STEPS):
        length = (length - kernel) // stride + 1
        x = convolution(g, x, f"conv{i}", (c_in, CHANNELS), (kernel,), stride=stride, pads=(0, 0))
        if i == 0:
            x = group_norm(g, x, "conv0.norm", (1, CHANNELS, length), CHANNELS)
        x, c_in = gelu(g, x), CHANNELS
    return g.op("Transpose", x, perm=[0, 2, 1]), length


def _positions(g: GraphBuilder, x: str) -> str:
    """Where a frame stands, by a wide grouped convolution over its neighbours."""
    rows = g.op("Transpose", x, perm=[0, 2, 1])
    rows = gelu(g, convolution(g, rows, "positions", (WIDTH, WIDTH), (31,), group=16))
    return g.op("Add", x, g.op("Transpose", rows, perm=[0, 2, 1]))


def speech(seed: int) -> ModelProto:
    g = GraphBuilder("speech", seed)
    x, frames = _frames(g, g.input("wave", (1, 1, SAMPLES)))
    x = linear(g, layer_norm(g, x, "norm", CHANNELS), "project", (CHANNELS, WIDTH))
    x = _positions(g, x)
    for i in range(LAYERS):
        x = encoder_layer(g, x, f"layer{i}", frames, WIDTH, 4, 1024)
    layer_norm(g, x, "final", WIDTH)
    return g.build("features", (1, frames, WIDTH))
