"""Attention over few keys in one function: the same numbers, and what is left as it is."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.kinds.cuda.graph.fuse_short_attention import FuseShortAttention
from mallorn.workers.tvm.network.graph_recipes import FP16_GPU
from tests.fixtures.cuda import cuda_target
from tests.unit.graphc.networks import difference, random_of, run
from tests.unit.graphc.pass_conformance import PassConformance

GPU = cuda_target("sm_90a")
HEADS = [0, 2, 1, 3]
ROUNDING = 2e-3  # of weights and results to float16


def network(
    tokens: int = 5,
    width: int = 16,
    *,
    mask: tuple[int, ...] = (),
    scaled: bool = True,
    axis: int = -1,
    transposed: bool = True,
) -> Any:
    """A module of attention whose inputs have the order [1, tokens, heads, width]."""
    builder, shape = relax.BlockBuilder(), (1, tokens, 2, width)
    inputs = [relax.Var(name, relax.TensorType(shape, "float16")) for name in "qkv"]
    masks = [relax.Var("mask", relax.TensorType(mask, "float32"))] if mask else []
    with builder.function("main", [*inputs, *masks]):
        with builder.dataflow():
            emit = builder.emit
            q, k, v = (
                emit(relax.op.permute_dims(value, [0, 2, 3, 1] if value is inputs[1] else HEADS))
                for value in inputs
            )
            scores = emit(relax.op.matmul(q, k, out_dtype="float32"))
            number = relax.const(np.float32(math.sqrt(width)))
            scores = emit(relax.op.divide(scores, number)) if scaled else scores
            scores = emit(relax.op.add(scores, masks[0])) if masks else scores
            scores = scores if scaled else emit(relax.op.divide(scores, number))
            weights = emit(relax.op.astype(emit(relax.op.nn.softmax(scores, axis)), "float16"))
            result = emit(relax.op.matmul(weights, v, out_dtype="float32"))
            result = emit(relax.op.permute_dims(result, HEADS)) if transposed else result
            result = builder.emit_output(relax.op.astype(result, "float16"))
        builder.emit_func_output(result)
    return builder.get()


class TestFuseShortAttention(PassConformance):
    PASS = FuseShortAttention
    LANES = ()
    RECIPE = FP16_GPU
    TARGET = GPU
    TOLERANCE = ROUNDING
    BEFORE = """
lv[1, 2, 5, 16] = permute_dims(q[1, 5, 2, 16])
lv1[1, 2, 16, 5] = permute_dims(k[1, 5, 2, 16])
lv2[1, 2, 5, 16] = permute_dims(v[1, 5, 2, 16])
lv3[1, 2, 5, 5] = matmul(lv[1, 2, 5, 16], lv1[1, 2, 16, 5])
lv4[1, 2, 5, 5] = divide(lv3[1, 2, 5, 5], constant[])
lv5[1, 2, 5, 5] = nn.softmax(lv4[1, 2, 5, 5])
lv6[1, 2, 5, 5] = astype(lv5[1, 2, 5, 5])
lv7[1, 2, 5, 16] = matmul(lv6[1, 2, 5, 5], lv2[1, 2, 5, 16])
lv8[1, 5, 2, 16] = permute_dims(lv7[1, 2, 5, 16])
gv[1, 5, 2, 16] = astype(lv8[1, 5, 2, 16])
"""
    AFTER = "gv[1, 5, 2, 16] = short_attention(q[1, 5, 2, 16], k[1, 5, 2, 16], v[1, 5, 2, 16])"

    def fires(self) -> Any:
        return network()

    def leaves(self) -> Mapping[str, Any]:
        unlike = "queries, keys and values are no 16-bit heads of n * 16 <= 128 numbers"
        return {
            "the softmax is not over the keys of a product, scaled and masked": network(axis=2),
            "the scores are not scaled by a number, then masked": network(mask=(1, 1, 1, 5), scaled=False),
            unlike: network(width=24),
            "scores of so many keys do not fit into shared memory": network(tokens=512),
        }


@pytest.mark.parametrize("tokens", [32, 37])
@pytest.mark.parametrize("mask", [(), (1, 1, 1, 0), (1, 2, 0, 0)], ids=["none", "of keys", "of pairs"])
def test_masks_and_odd_sizes_keep_the_numbers(tokens: int, mask: tuple[int, ...]) -> None:
    shape = tuple(size or tokens for size in mask)
    mod = network(tokens, 32, mask=shape, transposed=not mask)
    with tvm.target.Target(GPU):
        after, report = FuseShortAttention().apply(mod)
    assert report.fired == 1
    arrays = [random_of("float16", 1, tokens, 2, 32) for _ in range(3)]
    masks = [np.where(random_of("float32", *shape) > 0, np.float32(-1e4), 0)] if mask else []
    arrays += [each.astype("float32") for each in masks]
    assert difference(run(after, *arrays), run(mod, *arrays)) <= ROUNDING


def test_turing_keeps_three_kernels() -> None:
    with tvm.target.Target(cuda_target("sm_75")):
        _, report = FuseShortAttention().apply(network())
    assert list(report.left) == ["the GPU has no m16n8k16 products"]
