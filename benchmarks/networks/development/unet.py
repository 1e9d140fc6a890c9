"""One step of a denoiser on 64 x 64: group norms, skip connections, attention (Ho et al., 2020)."""

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import attention, convolution, group_norm, reshape, silu
from zoo.graph import GraphBuilder

SIDE, WIDTHS, GROUPS = 64, (64, 128, 256), 8


def _activated(g: GraphBuilder, x: str, name: str, channels: int, side: int) -> str:
    return silu(g, group_norm(g, x, f"{name}.norm", (1, channels, side, side), GROUPS))


def _block(g: GraphBuilder, x: str, name: str, channels: tuple[int, int], side: int) -> str:
    c_in, c_out = channels
    branch = convolution(g, _activated(g, x, f"{name}.1", c_in, side), f"{name}.1", channels, (3, 3))
    branch = _activated(g, branch, f"{name}.2", c_out, side)
    branch = convolution(g, branch, f"{name}.2", (c_out, c_out), (3, 3), gain=0.7)
    if c_in != c_out:
        x = convolution(g, x, f"{name}.shortcut", channels, (1, 1), gain=1.0)
    return g.op("Add", x, branch)


def _attended(g: GraphBuilder, x: str, channels: int, side: int) -> str:
    shape = (1, channels, side, side)
    rows = reshape(g, group_norm(g, x, "middle.norm", shape, GROUPS), (1, channels, side * side))
    rows = attention(g, g.op("Transpose", rows, perm=[0, 2, 1]), "middle", side * side, channels, 4)
    return g.op("Add", x, reshape(g, g.op("Transpose", rows, perm=[0, 2, 1]), shape))


def _doubled(g: GraphBuilder, x: str) -> str:
    scales = g.constant(f"scales_{x}", np.array([1, 1, 2, 2], np.float32))
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.op("Resize", x, "", scales, mode="nearest", **modes)


def unet(seed: int) -> ModelProto:
    g = GraphBuilder("unet", seed)
    x = convolution(g, g.input("sample", (1, 4, SIDE, SIDE)), "stem", (4, WIDTHS[0]), (3, 3), gain=1.0)
    side, channels, skipped = SIDE, WIDTHS[0], []
    for i, width in enumerate(WIDTHS):
        if i:
            side //= 2
            x = convolution(g, x, f"down{i}.half", (channels, channels), (3, 3), stride=2, gain=1.0)
        x, channels = _block(g, x, f"down{i}", (channels, width), side), width
        skipped.append((x, width))
    x = _attended(g, x, channels, side)
    x = _block(g, x, "middle.block", (channels, channels), side)
    for i, (skip, width) in reversed(list(enumerate(skipped[:-1]))):
        side *= 2
        x = convolution(g, _doubled(g, x), f"up{i}.double", (channels, width), (3, 3), gain=1.0)
        x, channels = _block(g, g.op("Concat", x, skip, axis=1), f"up{i}", (2 * width, width), side), width
    convolution(g, _activated(g, x, "out", channels, side), "out", (channels, 4), (3, 3), gain=1.0)
    return g.build("noise", (1, 4, SIDE, SIDE))
