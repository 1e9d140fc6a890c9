"""A small vision transformer: 196 patches of 16 x 16 and a token of the class (Dosovitskiy et al., 2020)."""

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import convolution, encoder_layer, layer_norm, reshape
from zoo.graph import GraphBuilder

PATCH, WIDTH, LAYERS, HEADS, HIDDEN, CLASSES = 16, 192, 8, 3, 768, 1000
PATCHES = (224 // PATCH) ** 2
TOKENS = PATCHES + 1


def vit(seed: int) -> ModelProto:
    g = GraphBuilder("vit", seed)
    x = g.input("input", (1, 3, 224, 224))
    x = convolution(g, x, "patches", (3, WIDTH), (PATCH, PATCH), stride=PATCH, pads=(0,) * 4, gain=1.0)
    x = g.op("Transpose", reshape(g, x, (1, WIDTH, PATCHES)), perm=[0, 2, 1])
    x = g.op("Concat", g.normal("class", (1, 1, WIDTH), 1.0), x, axis=1)
    x = g.op("Add", x, g.normal("positions", (1, TOKENS, WIDTH), 0.5))
    for i in range(LAYERS):
        x = encoder_layer(g, x, f"layer{i}", TOKENS, WIDTH, HEADS, HIDDEN)
    x = layer_norm(g, x, "norm", WIDTH)
    x = g.op("Gather", x, g.constant("first", np.array(0, np.int64)), axis=1)
    g.gemm(x, "classifier", (WIDTH, CLASSES))
    return g.build("logits", (1, CLASSES))
