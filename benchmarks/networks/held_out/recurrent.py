"""Two bidirectional LSTM layers over 64 steps, and scores of 40 tags (Graves & Schmidhuber, 2005)."""

import numpy as np
from onnx import ModelProto

from benchmarks.networks.layers import linear, reshape
from zoo.graph import GraphBuilder

STEPS, SERIES, WIDTH, LAYERS, TAGS = 64, 96, 192, 2, 40
DIRECTIONS, GATES = 2, 4


def _layer(g: GraphBuilder, x: str, name: str, features: int) -> str:
    """Both directions side by side, as exporters write it: they come apart from the operator."""
    rows = GATES * WIDTH
    weights = g.weight(f"{name}.weight", (DIRECTIONS, rows, features), features, 1.0)
    recurrent = g.weight(f"{name}.recurrent", (DIRECTIONS, rows, WIDTH), WIDTH, 1.0)
    bias = g.constant(f"{name}.bias", np.zeros((DIRECTIONS, 2 * rows), np.float32))
    found = g.op("LSTM", x, weights, recurrent, bias, direction="bidirectional", hidden_size=WIDTH)
    return reshape(g, g.op("Transpose", found, perm=[0, 2, 1, 3]), (STEPS, 1, DIRECTIONS * WIDTH))


def recurrent(seed: int) -> ModelProto:
    g = GraphBuilder("recurrent", seed)
    x, features = g.input("frames", (STEPS, 1, SERIES)), SERIES
    for layer in range(LAYERS):
        x, features = _layer(g, x, f"layer{layer}", features), DIRECTIONS * WIDTH
    linear(g, x, "tags", (features, TAGS), gain=4.0)
    return g.build("scores", (STEPS, 1, TAGS))
