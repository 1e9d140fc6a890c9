"""Networks of one operator, of sizes that real networks have."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import attention, convolution, layer_norm, linear, silu
from zoo.graph import GraphBuilder

Body = Callable[[GraphBuilder, str], str]
Shape = tuple[int, ...]


def _op(kind: str, **attributes: Any) -> Body:
    return lambda g, x: g.op(kind, x, **attributes)


def _conv(channels: tuple[int, int], kernel: Sequence[int], **options: Any) -> Body:
    return lambda g, x: g.op("Relu", convolution(g, x, "conv", channels, kernel, **options))


def _product(features: tuple[int, int]) -> Body:
    return lambda g, x: linear(g, x, "product", features)


def _reduced(kind: str, *axes: int) -> Body:
    return _op(kind, axes=list(axes), keepdims=0)


def _resized(mode: str, transformation: str) -> Body:
    def body(g: GraphBuilder, x: str) -> str:
        scales = g.constant("scales", np.array([1, 1, 2, 2], np.float32))
        return g.op("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=transformation)

    return body


def _excited(g: GraphBuilder, x: str) -> str:
    """Squeeze and excitation."""
    pooled = g.op("GlobalAveragePool", x)
    inner = g.op("Relu", g.conv(pooled, "down", (240, 60), 1))
    return g.op("Mul", x, g.op("Sigmoid", g.conv(inner, "up", (60, 240), 1)))


def _recurrent(kind: str, gates: int, inputs: int, hidden: int) -> Body:
    def body(g: GraphBuilder, x: str) -> str:
        weights = g.weight("w", (1, gates * hidden, inputs), inputs, 1.0)
        states = g.weight("r", (1, gates * hidden, hidden), hidden, 1.0)
        return g.op(kind, x, weights, states, hidden_size=hidden)

    return body


def _gated(g: GraphBuilder, x: str) -> str:
    return silu(g, linear(g, x, "product", (256, 1024)))


_PLANES, _SMALL = (1, 128, 28, 28), (1, 64, 56, 56)
OPERATORS: Final[Mapping[str, tuple[Body, Shape]]] = {
    "3x3 convolution": (_conv((128, 128), (3, 3)), _PLANES),
    "3x3, stride 2": (_conv((64, 128), (3, 3), stride=2), _SMALL),
    "3x3, dilation 6": (_conv((128, 128), (3, 3), dilation=6), _PLANES),
    "7x7 of 3 channels": (_conv((3, 64), (7, 7), stride=2), (1, 3, 224, 224)),
    "1x1": (_conv((256, 64), (1, 1)), (1, 256, 28, 28)),
    "1x1, planes of 37": (_conv((96, 96), (1, 1)), (1, 96, 37, 37)),
    "3x3, planes of 17": (_conv((128, 128), (3, 3)), (1, 128, 17, 17)),
    "1x7, planes of 17": (_conv((128, 128), (1, 7)), (1, 128, 17, 17)),
    "32 groups of 4": (_conv((128, 128), (3, 3), group=32), _PLANES),
    "8 groups of 16": (_conv((128, 128), (3, 3), group=8), _PLANES),
    "depthwise 3x3": (_conv((144, 144), (3, 3), group=144), (1, 144, 56, 56)),
    "depthwise 7x7": (_conv((128, 128), (7, 7), group=128), _PLANES),
    "one output channel": (_conv((64, 1), (3, 3)), _SMALL),
    "3x3x3 convolution": (_conv((32, 32), (3, 3, 3)), (1, 32, 8, 28, 28)),
    "sequence of 799": (_conv((256, 256), (3,), stride=2, pads=[0, 0]), (1, 256, 1599)),
    "128 rows": (_product((512, 512)), (1, 128, 512)),
    "101 rows": (_product((512, 512)), (1, 101, 512)),
    "32 rows, 1,000 columns": (_product((512, 1000)), (32, 512)),
    "one row": (_product((1024, 1000)), (1, 1024)),
    "product and SiLU": (_gated, (1, 128, 256)),
    "attention, 128 tokens": (lambda g, x: attention(g, x, "a", 128, 256, 4), (1, 128, 256)),
    "attention, 197 tokens": (lambda g, x: attention(g, x, "a", 197, 192, 3), (1, 197, 192)),
    "softmax, rows of 197": (_op("Softmax", axis=-1), (3, 197, 197)),
    "softmax, middle axis": (_op("Softmax", axis=1), (1, 64, 32, 32)),
    "log-softmax": (_op("LogSoftmax", axis=-1), (64, 1000)),
    "layer norm": (lambda g, x: layer_norm(g, x, "norm", 384), (1, 197, 384)),
    "mean, last axis": (_reduced("ReduceMean", -1), (512, 1024)),
    "mean, first axis": (_reduced("ReduceMean", 0), (512, 1024)),
    "largest of planes": (_reduced("ReduceMax", 2, 3), (1, 256, 56, 56)),
    "global average": (_op("GlobalAveragePool"), (1, 512, 14, 14)),
    "max pool": (_op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), (1, 64, 112, 112)),
    "average pool": (_op("AveragePool", kernel_shape=[3, 3], pads=[1] * 4), (1, 192, 35, 35)),
    "squeeze and excitation": (_excited, (1, 240, 28, 28)),
    "hard swish": (_op("HardSwish"), _SMALL),
    "sigmoid": (_op("Sigmoid"), _SMALL),
    "resize, nearest": (_resized("nearest", "asymmetric"), (1, 128, 32, 32)),
    "resize, linear": (_resized("linear", "half_pixel"), (1, 128, 32, 32)),
    "LSTM": (_recurrent("LSTM", 4, 128, 128), (64, 1, 128)),
    "GRU": (_recurrent("GRU", 3, 128, 128), (64, 1, 128)),
}


def model_of(name: str) -> tuple[ModelProto, Shape]:
    """A network of one operator, and what it takes."""
    body, shape = OPERATORS[name]
    g = GraphBuilder("operator", 0)
    body(g, g.input("x", shape))
    return g.build("y", None), shape
