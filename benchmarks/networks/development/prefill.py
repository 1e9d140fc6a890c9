"""The prompt of a small decoder, 128 tokens at once, as Llama has it (Touvron et al., 2023)."""

import math

import numpy as np
from onnx import ModelProto, TensorProto

from benchmarks.networks.layers import linear, reshape, rms_norm, scalar, silu
from zoo.graph import GraphBuilder

LAYERS, WIDTH, HIDDEN, VOCABULARY, TOKENS = 4, 512, 1408, 4096, 128
HEADS, SHARED, SIZE = 8, 2, 64  # heads of queries, heads of keys and values, width of a head


def _rotated(g: GraphBuilder, x: str) -> str:
    """Rotary positions: halves of every head are turned by an angle that grows with the position."""
    low, high = (
        g.op(
            "Slice",
            x,
            *(g.constant(f"{x}.{i}.{part}", np.array([value], np.int64)) for i, value in enumerate(ends)),
        )
        for part, ends in (("low", (0, SIZE // 2, 3)), ("high", (SIZE // 2, SIZE, 3)))
    )
    turned = g.op("Concat", g.op("Neg", high), low, axis=-1)
    return g.op("Add", g.op("Mul", x, "rotary.cos"), g.op("Mul", turned, "rotary.sin"))


def _heads(g: GraphBuilder, x: str, name: str, heads: int) -> str:
    value = linear(g, x, name, (WIDTH, heads * SIZE), bias=False)
    return g.op("Transpose", reshape(g, value, (1, TOKENS, heads, SIZE)), perm=[0, 2, 1, 3])


def _repeated(g: GraphBuilder, x: str) -> str:
    """Several heads of queries read the same keys and values."""
    groups = HEADS // SHARED
    axes = g.constant(f"axes_{x}", np.array([2], np.int64))
    shape = g.constant(f"repeat_{x}", np.array([1, SHARED, groups, TOKENS, SIZE], np.int64))
    return reshape(g, g.op("Expand", g.op("Unsqueeze", x, axes), shape), (1, HEADS, TOKENS, SIZE))


def _attention(g: GraphBuilder, x: str, name: str) -> str:
    query = _rotated(g, _heads(g, x, f"{name}.query", HEADS))
    key = _repeated(g, _rotated(g, _heads(g, x, f"{name}.key", SHARED)))
    value = _repeated(g, _heads(g, x, f"{name}.value", SHARED))
    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = g.op("Add", g.op("Mul", scores, scalar(g, 1 / math.sqrt(SIZE))), "causal")
    context = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
    merged = reshape(g, g.op("Transpose", context, perm=[0, 2, 1, 3]), (1, TOKENS, HEADS * SIZE))
    return linear(g, merged, f"{name}.output", (HEADS * SIZE, WIDTH), bias=False)


def _layer(g: GraphBuilder, x: str, name: str) -> str:
    x = g.op("Add", x, _attention(g, rms_norm(g, x, f"{name}.norm1", WIDTH), f"{name}.attention"))
    inner = rms_norm(g, x, f"{name}.norm2", WIDTH)
    gate = silu(g, linear(g, inner, f"{name}.gate", (WIDTH, HIDDEN), bias=False))
    inner = g.op("Mul", gate, linear(g, inner, f"{name}.up", (WIDTH, HIDDEN), bias=False))
    return g.op("Add", x, linear(g, inner, f"{name}.down", (HIDDEN, WIDTH), bias=False))


def _tables(g: GraphBuilder) -> None:
    angles = np.outer(np.arange(TOKENS), 10000.0 ** (-np.arange(0, SIZE, 2) / SIZE))
    angles = np.concatenate([angles, angles], axis=1)[None, None].astype(np.float32)
    g.constant("rotary.cos", np.cos(angles))
    g.constant("rotary.sin", np.sin(angles))
    g.constant("causal", np.triu(np.full((1, 1, TOKENS, TOKENS), -1e9, np.float32), 1))


def prefill(seed: int) -> ModelProto:
    g = GraphBuilder("prefill", seed)
    _tables(g)
    ids = g.input("input_ids", (1, TOKENS), TensorProto.INT64)
    x = g.op("Gather", g.normal("embeddings", (VOCABULARY, WIDTH), 1.0), ids, axis=0)
    for i in range(LAYERS):
        x = _layer(g, x, f"layer{i}")
    linear(g, rms_norm(g, x, "norm", WIDTH), "head", (WIDTH, VOCABULARY), bias=False)
    return g.build("logits", (1, TOKENS, VOCABULARY))
