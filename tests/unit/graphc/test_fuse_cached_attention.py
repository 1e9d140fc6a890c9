"""Attention over a cache of any length is one function; what reads no cache stays as it is."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from mallorn.graphc.attention.fuse_cached_attention import FuseCachedAttention
from tests.unit.graphc import networks
from tests.unit.graphc.networks import Body, random, run

HEADS, NUMBERS, SAMPLE = 2, 8, 11


def network(body: Body) -> tuple[Any, Any]:
    """What `body` makes of a query and of keys and values of any length, and the length."""
    length = tirx.Var("n", "int64")
    cache = 1, HEADS, length, NUMBERS
    return networks.network(body, (1, HEADS, 1, NUMBERS), cache, cache), length


def attention(emit: Any, query: Any, keys: Any, values: Any) -> Any:
    scores = emit(relax.op.matmul(query, emit(relax.op.permute_dims(keys, [0, 1, 3, 2]))))
    weights = emit(relax.op.nn.softmax(emit(relax.op.multiply(scores, relax.const(0.5)))))
    return relax.op.matmul(weights, values)


def over_heads(emit: Any, query: Any, keys: Any, values: Any) -> Any:
    """A softmax over another axis than the cache."""
    scores = emit(relax.op.matmul(query, emit(relax.op.permute_dims(keys, [0, 1, 3, 2]))))
    return relax.op.matmul(emit(relax.op.nn.softmax(scores, axis=1)), values)


@pytest.mark.parametrize("length", [1, 5, 70])
def test_the_numbers_are_those_of_its_operators(length: int) -> None:
    mod, size = network(attention)
    after, report = FuseCachedAttention(size, SAMPLE).apply(mod)
    assert (report.fired, report.left["the weights of the product do not come from a softmax"]) == (
        1,
        1,
    )  # the product of scores
    arrays = random(1, HEADS, 1, NUMBERS), *(random(1, HEADS, length, NUMBERS) for _ in range(2))
    np.testing.assert_allclose(run(after, *arrays), run(mod, *arrays), rtol=1e-5, atol=1e-6)


def test_a_softmax_over_heads_stays() -> None:
    mod, size = network(over_heads)
    _, report = FuseCachedAttention(size, SAMPLE).apply(mod)
    assert (report.fired, report.left["the softmax is not over the last axis"]) == (0, 1)


def test_a_second_time_changes_nothing() -> None:
    mod, size = network(attention)
    once = FuseCachedAttention(size, SAMPLE)(mod)
    twice, report = FuseCachedAttention(size, SAMPLE).apply(once)
    assert report.fired == 0
    tvm.ir.assert_structural_equal(twice, once)
