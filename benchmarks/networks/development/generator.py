"""A generator of four pictures of 64 x 64 by transposed convolutions, like DCGAN's (Radford et al., 2015)."""

import itertools

from onnx import ModelProto

from benchmarks.networks.layers import doubling, reshape
from zoo.graph import GraphBuilder

BATCH, NOISE = 4, 100
CHANNELS = (512, 256, 128, 64)


def generator(seed: int) -> ModelProto:
    g = GraphBuilder("generator", seed)
    x = g.gemm(g.input("noise", (BATCH, NOISE)), "project", (NOISE, CHANNELS[0] * 16))
    x = g.op("Relu", reshape(g, x, (BATCH, CHANNELS[0], 4, 4)))
    for i, channels in enumerate(itertools.pairwise(CHANNELS)):
        x = g.op("Relu", doubling(g, x, f"up{i}", channels))
    g.op("Tanh", doubling(g, x, "image", (CHANNELS[-1], 3), gain=1.0))
    return g.build("images", (BATCH, 3, 64, 64))
