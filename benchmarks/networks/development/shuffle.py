"""ShuffleNet V2 for one image of 224 x 224: half of the channels pass each block by (Ma et al., 2018)."""

from onnx import ModelProto

from benchmarks.networks.layers import convolution, reshape
from zoo.graph import GraphBuilder

WIDTHS, DEPTHS, STEM, LAST, CLASSES = (116, 232, 464), (4, 8, 4), 24, 1024, 1000


def _point(g: GraphBuilder, x: str, name: str, channels: tuple[int, int]) -> str:
    return g.op("Relu", convolution(g, x, name, channels, (1, 1)))


def _deep(g: GraphBuilder, x: str, name: str, width: int, stride: int) -> str:
    return convolution(g, x, name, (width, width), (3, 3), stride=stride, group=width, gain=1.0)


def _branch(g: GraphBuilder, x: str, name: str, channels: tuple[int, int], stride: int) -> str:
    x = _point(g, x, f"{name}.wide", channels)
    return _point(g, _deep(g, x, f"{name}.deep", channels[1], stride), f"{name}.narrow", (channels[1],) * 2)


def _shuffled(g: GraphBuilder, parts: list[str], width: int, size: int) -> str:
    """Channels of both parts in turn."""
    grouped = reshape(g, g.op("Concat", *parts, axis=1), (1, 2, width // 2, size, size))
    return reshape(g, g.op("Transpose", grouped, perm=[0, 2, 1, 3, 4]), (1, width, size, size))


def _halving(g: GraphBuilder, x: str, name: str, c_in: int, half: int) -> list[str]:
    """Both branches halve height and width."""
    deep = _deep(g, x, f"{name}.beside.deep", c_in, 2)
    return [_point(g, deep, f"{name}.beside", (c_in, half)), _branch(g, x, name, (c_in, half), 2)]


def _keeping(g: GraphBuilder, x: str, name: str, half: int) -> list[str]:
    passing, changed = g.split(x, axis=1)
    return [passing, _branch(g, changed, name, (half, half), 1)]


def shuffle(seed: int) -> ModelProto:
    g = GraphBuilder("shuffle", seed)
    x = g.op("Relu", convolution(g, g.input("input", (1, 3, 224, 224)), "stem", (3, STEM), (3, 3), stride=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    c_in, size = STEM, 56
    for i, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
        half, size = width // 2, size // 2
        x = _shuffled(g, _halving(g, x, f"stage{i}.0", c_in, half), width, size)
        for j in range(1, depth):
            x = _shuffled(g, _keeping(g, x, f"stage{i}.{j}", half), width, size)
        c_in = width
    x = _point(g, x, "last", (c_in, LAST))
    g.gemm(g.op("ReduceMean", x, axes=[2, 3], keepdims=0), "classifier", (LAST, CLASSES))
    return g.build("logits", (1, CLASSES))
