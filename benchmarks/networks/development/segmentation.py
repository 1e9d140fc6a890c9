"""Labels for 256 x 256 pixels: dilated residual blocks, pyramid pooling (DeepLab v3, Chen et al., 2017)."""

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import convolution
from zoo.graph import GraphBuilder

CLASSES, WIDTH = 21, 128
STAGES = ((64, 1, 1), (128, 2, 1), (192, 1, 2), (192, 1, 4))  # channels, stride, dilation
RATES = (6, 12, 18)


def _block(g: GraphBuilder, x: str, name: str, channels: tuple[int, int], stride: int, dilation: int) -> str:
    c_in, c_out = channels
    branch = g.op("Relu", convolution(g, x, f"{name}.1", channels, (3, 3), stride=stride, dilation=dilation))
    branch = convolution(g, branch, f"{name}.2", (c_out, c_out), (3, 3), dilation=dilation, gain=0.5)
    if stride != 1 or c_in != c_out:
        x = convolution(g, x, f"{name}.shortcut", channels, (1, 1), stride=stride, gain=1.0)
    return g.op("Relu", g.op("Add", x, branch))


def _enlarged(g: GraphBuilder, x: str, times: float) -> str:
    scales = g.constant(f"scales_{x}", np.array([1, 1, times, times], np.float32))
    return g.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")


def _pyramid(g: GraphBuilder, x: str, channels: int) -> str:
    """Branches of several dilations beside each other, and the mean of the picture."""
    narrow = (channels, WIDTH)
    branches = [g.op("Relu", convolution(g, x, "pyramid.point", narrow, (1, 1)))]
    for rate in RATES:
        branches.append(g.op("Relu", convolution(g, x, f"pyramid.{rate}", narrow, (3, 3), dilation=rate)))
    mean = g.op("Relu", convolution(g, g.op("GlobalAveragePool", x), "pyramid.mean", narrow, (1, 1)))
    branches.append(_enlarged(g, mean, 32.0))
    joined = g.op("Concat", *branches, axis=1)
    return g.op("Relu", convolution(g, joined, "pyramid.project", (WIDTH * len(branches), WIDTH), (1, 1)))


def segmentation(seed: int) -> ModelProto:
    g = GraphBuilder("segmentation", seed)
    x = g.input("input", (1, 3, 256, 256))
    x = g.op("Relu", convolution(g, x, "stem", (3, 64), (7, 7), stride=2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    c_in = 64
    for i, (c_out, stride, dilation) in enumerate(STAGES):
        x = _block(g, x, f"block{i}", (c_in, c_out), stride, dilation)
        c_in = c_out
    x = _pyramid(g, x, c_in)
    x = g.op("Relu", convolution(g, x, "head", (WIDTH, WIDTH), (3, 3)))
    _enlarged(g, convolution(g, x, "classifier", (WIDTH, CLASSES), (1, 1), gain=1.0), 8.0)
    return g.build("logits", (1, CLASSES, 256, 256))
