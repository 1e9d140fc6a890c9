"""SegFormer's labels for one image of 224 x 224: attention to fewer keys, perceptrons around depthwise
convolutions (Xie et al., 2021)."""

import math

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import convolution, gelu, layer_norm, linear, reshape, scalar
from zoo.graph import GraphBuilder

WIDTHS, DEPTHS, HEADS, SHORTENED, WIDER = (32, 64, 160, 256), (2, 2, 2, 2), (1, 2, 5, 8), (8, 4, 2, 1), 4
SIDE, HIDDEN, CLASSES = 56, 256, 150  # of the first stage's tokens; of the head


def _rows(g: GraphBuilder, x: str, width: int) -> str:
    """An image as rows of channels."""
    return g.op("Transpose", reshape(g, x, (1, width, -1)), perm=[0, 2, 1])


def _image(g: GraphBuilder, x: str, width: int, side: int) -> str:
    return reshape(g, g.op("Transpose", x, perm=[0, 2, 1]), (1, width, side, side))


def _heads(g: GraphBuilder, x: str, name: str, width: int, heads: int, perm: list[int]) -> str:
    split = reshape(g, linear(g, x, name, (width, width)), (1, -1, heads, width // heads))
    return g.op("Transpose", split, perm=perm)


def _attention(g: GraphBuilder, x: str, name: str, width: int, heads: int, side: int, shortened: int) -> str:
    """Of every token to every patch of tokens."""
    keys = x
    if shortened > 1:
        image, kernel = _image(g, x, width, side), (shortened, shortened)
        image = convolution(
            g, image, f"{name}.short", (width, width), kernel, stride=shortened, pads=(0,) * 4, gain=1.0
        )
        keys = layer_norm(g, _rows(g, image, width), f"{name}.norm", width)
    query = _heads(g, x, f"{name}.query", width, heads, [0, 2, 1, 3])
    key = _heads(g, keys, f"{name}.key", width, heads, [0, 2, 3, 1])
    value = _heads(g, keys, f"{name}.value", width, heads, [0, 2, 1, 3])
    scores = g.op("Div", g.op("MatMul", query, key), scalar(g, math.sqrt(width // heads)))
    context = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
    merged = reshape(g, g.op("Transpose", context, perm=[0, 2, 1, 3]), (1, side * side, width))
    return linear(g, merged, f"{name}.output", (width, width))


def _perceptron(g: GraphBuilder, x: str, name: str, width: int, side: int) -> str:
    wide = WIDER * width
    image = _image(g, linear(g, x, f"{name}.wide", (width, wide)), wide, side)
    image = convolution(g, image, f"{name}.deep", (wide, wide), (3, 3), group=wide, gain=1.0)
    return linear(g, gelu(g, _rows(g, image, wide)), f"{name}.narrow", (wide, width))


def _stage(g: GraphBuilder, x: str, stage: int, c_in: int, side: int) -> str:
    width, kernel, stride = WIDTHS[stage], (3, 3) if stage else (7, 7), 2 if stage else 4
    x = convolution(g, x, f"patch{stage}", (c_in, width), kernel, stride=stride, gain=1.0)
    x = layer_norm(g, _rows(g, x, width), f"patch{stage}.norm", width)
    for j in range(DEPTHS[stage]):
        name = f"stage{stage}.{j}"
        inner = layer_norm(g, x, f"{name}.norm1", width)
        x = g.op("Add", x, _attention(g, inner, name, width, HEADS[stage], side, SHORTENED[stage]))
        x = g.op("Add", x, _perceptron(g, layer_norm(g, x, f"{name}.norm2", width), name, width, side))
    rows = reshape(g, layer_norm(g, x, f"stage{stage}.norm", width), (1, side, side, width))
    return g.op("Transpose", rows, perm=[0, 3, 1, 2])


def _scaled(g: GraphBuilder, x: str, name: str, times: float) -> str:
    scales = g.constant(f"{name}.scales", np.array([1, 1, times, times], np.float32))
    return g.op("Resize", x, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")


def segformer(seed: int) -> ModelProto:
    g = GraphBuilder("segformer", seed)
    x, c_in, levels = g.input("input", (1, 3, 224, 224)), 3, []
    for stage, width in enumerate(WIDTHS):
        side = SIDE >> stage
        x, c_in = _stage(g, x, stage, c_in, side), width
        level = linear(g, _rows(g, x, width), f"head{stage}", (width, HIDDEN))
        level = _image(g, level, HIDDEN, side)
        levels.append(_scaled(g, level, f"head{stage}", 2.0**stage) if stage else level)
    joined = g.op("Concat", *reversed(levels), axis=1)
    x = g.op("Relu", convolution(g, joined, "fuse", (HIDDEN * len(WIDTHS), HIDDEN), (1, 1)))
    convolution(g, x, "labels", (HIDDEN, CLASSES), (1, 1), gain=1.0)
    return g.build("logits", (1, CLASSES, SIDE, SIDE))
