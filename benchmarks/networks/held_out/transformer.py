"""Two wide blocks of an encoder over 128 tokens, of BERT-base's width (Devlin et al., 2018)."""

from onnx import ModelProto, TensorProto

from benchmarks.networks.layers import encoder_layer, layer_norm
from zoo.graph import GraphBuilder

LAYERS, WIDTH, HEADS, HIDDEN, TOKENS, VOCABULARY = 2, 768, 12, 3072, 128, 8192


def transformer(seed: int) -> ModelProto:
    g = GraphBuilder("transformer", seed)
    ids = g.input("input_ids", (1, TOKENS), TensorProto.INT64)
    x = g.op("Gather", g.normal("embeddings", (VOCABULARY, WIDTH), 1.0), ids, axis=0)
    x = g.op("Add", x, g.normal("positions", (1, TOKENS, WIDTH), 0.5))
    for i in range(LAYERS):
        x = encoder_layer(g, x, f"layer{i}", TOKENS, WIDTH, HEADS, HIDDEN)
    layer_norm(g, x, "norm", WIDTH)
    return g.build("hidden", (1, TOKENS, WIDTH))
