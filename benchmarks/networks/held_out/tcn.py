"""A sequence of 1,024 steps by causal 1-d convolutions whose dilation doubles (Bai et al., 2018)."""

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import convolution
from zoo.graph import GraphBuilder

STEPS, SERIES, WIDTH, LEVELS, KERNEL = 1024, 16, 128, 8, 3


def _causal(g: GraphBuilder, x: str, name: str, channels: tuple[int, int], dilation: int, gain: float) -> str:
    """Padding stands before the sequence alone: no step sees a later one."""
    pads = g.constant(f"{name}.pads", np.array([0, 0, dilation * (KERNEL - 1), 0, 0, 0], np.int64))
    padded = g.op("Pad", x, pads, mode="constant")
    return convolution(g, padded, name, channels, (KERNEL,), dilation=dilation, pads=(0, 0), gain=gain)


def tcn(seed: int) -> ModelProto:
    g = GraphBuilder("tcn", seed)
    x, c_in = g.input("series", (1, SERIES, STEPS)), SERIES
    for level in range(LEVELS):
        name, dilation = f"level{level}", 2**level
        branch = g.op("Relu", _causal(g, x, f"{name}.1", (c_in, WIDTH), dilation, 1.4))
        branch = g.op("Relu", _causal(g, branch, f"{name}.2", (WIDTH, WIDTH), dilation, 0.7))
        if c_in != WIDTH:
            x = convolution(g, x, f"{name}.shortcut", (c_in, WIDTH), (1,), gain=1.0)
        x, c_in = g.op("Relu", g.op("Add", x, branch)), WIDTH
    convolution(g, x, "forecast", (WIDTH, SERIES), (1,), gain=0.7)
    return g.build("forecast_series", (1, SERIES, STEPS))
