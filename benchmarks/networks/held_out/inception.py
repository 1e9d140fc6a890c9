"""Branches beside each other, wide kernels in factors of one row and one column (Szegedy et al., 2015)."""

from collections.abc import Sequence

from onnx import ModelProto

from benchmarks.networks.layers import convolution
from zoo.graph import GraphBuilder

CLASSES = 1000
NARROW, MIDDLE, WIDE = 192, 384, 640  # channels of the three stages


def _unit(
    g: GraphBuilder, x: str, name: str, channels: tuple[int, int], kernel: Sequence[int], stride: int = 1
) -> str:
    rows, columns = (size // 2 for size in kernel)
    pads = (0,) * 4 if stride != 1 else (rows, columns) * 2
    return g.op("Relu", convolution(g, x, name, channels, kernel, stride=stride, pads=pads))


def _chain(
    g: GraphBuilder, x: str, name: str, c_in: int, units: Sequence[tuple[int, tuple[int, int]]]
) -> str:
    for i, (c_out, kernel) in enumerate(units):
        x, c_in = _unit(g, x, f"{name}.{i}", (c_in, c_out), kernel), c_out
    return x


def _around(g: GraphBuilder, x: str) -> str:
    """The mean of each pixel's neighbours."""
    return g.op("AveragePool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1], count_include_pad=1)


def _block(g: GraphBuilder, x: str, name: str, channels: int, width: int, size: int) -> str:
    """Four branches that keep the channels' number; `size` is the long side of the factors."""
    row, column = (1, size), (size, 1)
    branches = (
        _chain(g, x, f"{name}.point", channels, [(width, (1, 1))]),
        _chain(g, x, f"{name}.one", channels, [(width // 2, (1, 1)), (width // 2, row), (width, column)]),
        _chain(
            g,
            x,
            f"{name}.two",
            channels,
            [
                (width // 2, (1, 1)),
                (width // 2, column),
                (width // 2, row),
                (width // 2, column),
                (width, row),
            ],
        ),
        _chain(g, _around(g, x), f"{name}.mean", channels, [(channels - 3 * width, (1, 1))]),
    )
    return g.op("Concat", *branches, axis=1)


def _halved(g: GraphBuilder, x: str, name: str, channels: int, widened: int) -> str:
    new = _unit(g, x, name, (channels, widened - channels), (3, 3), stride=2)
    return g.op("Concat", new, g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2]), axis=1)


def inception(seed: int) -> ModelProto:
    g = GraphBuilder("inception", seed)
    x = _unit(g, g.input("input", (1, 3, 171, 171)), "stem.half", (3, 32), (3, 3), stride=2)
    x = _chain(g, x, "stem", 32, [(32, (3, 3)), (64, (3, 3))])
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = _unit(g, x, "stem.wide", (64, NARROW), (3, 3), stride=2)
    for i in range(2):
        x = _block(g, x, f"narrow{i}", NARROW, 48, 5)
    x = _halved(g, x, "half0", NARROW, MIDDLE)
    for i in range(2):
        x = _block(g, x, f"middle{i}", MIDDLE, 96, 7)
    x = _halved(g, x, "half1", MIDDLE, WIDE)
    for i in range(2):
        x = _block(g, x, f"wide{i}", WIDE, 160, 3)
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    g.gemm(x, "classifier", (WIDE, CLASSES))
    return g.build("logits", (1, CLASSES))
