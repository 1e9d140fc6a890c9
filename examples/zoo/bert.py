"""A small BERT encoder: 4 layers of width 256 over 128 tokens (Devlin et al., 2018; Turc et al., 2019)."""

import math

import numpy as np
from onnx import ModelProto, TensorProto

from zoo.graph import GraphBuilder

LAYERS, HIDDEN, HEADS, FFN = 4, 256, 4, 1024
TOKENS, VOCABULARY = 128, 30522
HEAD_DIM = HIDDEN // HEADS


def _linear(g: GraphBuilder, x: str, name: str, features: tuple[int, int]) -> str:
    weight = g.weight(f"{name}.weight", features, features[0], gain=1.0)
    bias = g.normal(f"{name}.bias", features[1:], 0.02)
    return g.op("Add", g.op("MatMul", x, weight), bias)


def _layer_norm(g: GraphBuilder, x: str, name: str) -> str:
    scale = g.constant(f"{name}.weight", np.ones(HIDDEN, np.float32))
    bias = g.constant(f"{name}.bias", np.zeros(HIDDEN, np.float32))
    return g.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-12)


def _gelu(g: GraphBuilder, x: str) -> str:
    erf = g.op("Erf", g.op("Div", x, "sqrt_two"))
    return g.op("Mul", g.op("Mul", x, g.op("Add", erf, "one")), "half")


def _attention(g: GraphBuilder, x: str, name: str) -> str:
    """Append scaled dot-product attention; keys are split and transposed in one step."""

    def heads(role: str, perm: list[int]) -> str:
        value = _linear(g, x, f"{name}.{role}", (HIDDEN, HIDDEN))
        return g.op("Transpose", g.op("Reshape", value, "split_heads"), perm=perm)

    query, key, value = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]), heads("value", [0, 2, 1, 3])
    scores = g.op("Div", g.op("MatMul", query, key), "sqrt_head_dim")
    context = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
    merged = g.op("Reshape", g.op("Transpose", context, perm=[0, 2, 1, 3]), "merge_heads")
    return _linear(g, merged, f"{name}.output", (HIDDEN, HIDDEN))


def _layer(g: GraphBuilder, x: str, name: str) -> str:
    x = _layer_norm(g, g.op("Add", _attention(g, x, f"{name}.attention"), x), f"{name}.norm1")
    hidden = _gelu(g, _linear(g, x, f"{name}.ffn1", (HIDDEN, FFN)))
    return _layer_norm(g, g.op("Add", _linear(g, hidden, f"{name}.ffn2", (FFN, HIDDEN)), x), f"{name}.norm2")


def bert_small(seed: int) -> ModelProto:
    """Build the encoder, without a padding mask; its output is the last hidden state."""
    g = GraphBuilder("bert-small", seed)
    g.scalar("one", 1.0)
    g.scalar("half", 0.5)
    g.scalar("sqrt_two", math.sqrt(2))
    g.scalar("sqrt_head_dim", math.sqrt(HEAD_DIM))
    g.constant("split_heads", np.array([1, TOKENS, HEADS, HEAD_DIM], np.int64))
    g.constant("merge_heads", np.array([1, TOKENS, HIDDEN], np.int64))
    ids = g.input("input_ids", (1, TOKENS), TensorProto.INT64)
    words = g.op("Gather", g.normal("embeddings.word", (VOCABULARY, HIDDEN), 1.0), ids, axis=0)
    x = g.op("Add", words, g.normal("embeddings.position", (1, TOKENS, HIDDEN), 0.5))
    x = _layer_norm(g, x, "embeddings.norm")
    for i in range(LAYERS):
        x = _layer(g, x, f"layer{i}")
    return g.build("last_hidden_state", (1, TOKENS, HIDDEN))
