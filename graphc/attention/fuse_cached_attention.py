"""Attention over caches of any length, as one function that reads them once.

TVM's kernels for sizes that it does not know are plain loops.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from graphc.attention.cached_attention_function import cached_attention_function
from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import permutation, sizes_at
from graphc.core.reporting_pass import Leave

PRODUCT = "relax.matmul"
_VIEWS = ("relax.reshape", "relax.permute_dims", "relax.broadcast_to", "relax.expand_dims", "relax.squeeze")


class CacheView(NamedTuple):
    """What a product reads through views: a tensor of [batch, heads, length, numbers], and its factor."""

    tensor: Any
    scale: float


class Scores(NamedTuple):
    """The product of queries and keys, what is added to it, and its factor."""

    product: Any
    mask: Any | None
    scale: float


@dataclass(frozen=True)
class CachedAttention:
    """What attention reads; `rows` are the queries of a head."""

    scores: Scores
    keys: CacheView
    values: CacheView
    rows: int


class FuseCachedAttention(Pass[CachedAttention]):
    """Computes attention over caches as long as `length` in one function; `sample` is one such length."""

    name, match = "attention.fuse_cached", (PRODUCT,)
    any_size = True

    def __init__(self, length: Any, sample: int) -> None:
        super().__init__()
        self._length, self._sample = length, sample

    def check(self, call: Any, g: Graph) -> CachedAttention:
        weights, value = call.args
        scores = _scores(weights, g)
        if not self._grows(weights):
            raise Leave("it reads no cache")
        query, stack = scores.product.args[0], self._at(call)[:-2]
        if len(stack) > 2 or self._grows(query):
            raise Leave("its queries are a stack, or grow with the cache")
        keys = self._cache(scores.product.args[1], prod(stack), g, transposed=True)
        values = self._cache(value, prod(stack), g, transposed=False)
        if not self._at(keys.tensor)[-1] == self._at(values.tensor)[-1] == self._at(query)[-1]:
            raise Leave("keys, values and queries have other sizes")
        return CachedAttention(scores, keys, values, self._at(call)[-2])

    def rewrite(self, call: Any, facts: CachedAttention, g: Graph) -> Any:
        batch, heads, _, numbers = self._at(facts.keys.tensor)
        each = prod(self._at(call)[:-2]) // (batch * heads) * facts.rows
        shape = batch, heads, each, numbers
        masks = _mask(facts.scores.mask)
        scale = facts.scores.scale * facts.keys.scale
        sizes = [self._at(mask) for mask in masks]
        function = cached_attention_function(shape, facts.rows, sizes, scale, facts.values.scale)
        query = relax.op.reshape(facts.scores.product.args[0], shape)
        arguments = [query, facts.keys.tensor, facts.values.tensor, *masks]
        found = g.call_function("attention", function, arguments, relax.TensorType(shape, "float32"))
        return relax.op.reshape(found, call.ty.shape)

    def _cache(self, factor: Any, count: int, g: Graph, transposed: bool) -> CacheView:
        """The tensor that so many matrices are views of, if they are its heads in order."""
        views, scale, tensor = [], 1.0, factor
        while (value := g.producer(tensor)) is not None:
            if (found := _scaled(value, g)) is not None:
                scale, tensor = scale * found[0], found[1]
            elif operator_name(value) in _VIEWS:
                views.append(value)
                tensor = value.args[0]
            else:
                break
        shape = self._at(tensor)
        if len(shape) != 4 or not self._grows(tensor) or tensor.ty.dtype != "float32":
            raise Leave("its keys or values are no cache of four axes")
        places = seen = np.arange(prod(shape)).reshape(shape)
        for view in reversed(views):
            seen = _viewed(seen, view, self._at(view))
        if not _is_heads_in_order(seen, places, count, transposed):
            raise Leave("its keys or values are no heads of a cache in order")
        return CacheView(tensor, scale)

    def _at(self, value: Any) -> list[int]:
        """Its sizes at the sample's length."""
        return sizes_at(value.ty.shape, self._length, self._sample)

    def _grows(self, value: Any) -> bool:
        return self._at(value) != sizes_at(value.ty.shape, self._length, self._sample + 1)


def _is_heads_in_order(seen: Any, places: Any, count: int, transposed: bool) -> bool:
    batch, heads, length, numbers = places.shape
    if count % (batch * heads):
        return False
    expected = np.repeat(places.reshape(batch * heads, length, numbers), count // (batch * heads), axis=0)
    expected = expected.swapaxes(1, 2) if transposed else expected
    return bool(seen.size == expected.size and np.array_equal(seen.reshape(expected.shape), expected))


def _mask(mask: Any) -> list[Any]:
    if mask is None:
        return []
    missing = 4 - mask.ty.ndim
    return [relax.op.expand_dims(mask, list(range(missing))) if missing else mask]


def _scores(weights: Any, g: Graph) -> Scores:
    value = g.producer(weights)
    if value is not None and operator_name(value) == "relax.where":  # rows that see nothing
        value = g.producer(value.args[2])
    if value is None or operator_name(value) != "relax.nn.softmax":
        raise Leave("it weighs nothing by a softmax")
    if int(value.attrs.axis) not in (-1, value.ty.ndim - 1):
        raise Leave("its softmax is not over the last axis")
    scores, mask = g.producer(value.args[0]), None
    if scores is not None and operator_name(scores) == "relax.add":
        one, other = scores.args
        _, product = _unscaled(g.producer(one), g)
        leads = product is not None and operator_name(product) == PRODUCT
        scores, mask = (one, other) if leads else (other, one)
        scores = g.producer(scores)
    scale, product = _unscaled(scores, g)
    deep = mask is not None and mask.ty.ndim > 4
    if deep or product is None or operator_name(product) != PRODUCT:
        raise Leave("its softmax is of no product of queries and keys")
    return Scores(product, mask, scale)


def _unscaled(value: Any | None, g: Graph) -> tuple[float, Any | None]:
    """All numbers that a tensor is multiplied with, and the call that computes it."""
    scale = 1.0
    while value is not None and (found := _scaled(value, g)) is not None:
        scale, value = scale * found[0], g.producer(found[1])
    return scale, value


def _scaled(value: Any, g: Graph) -> tuple[float, Any] | None:
    """A number that a tensor is multiplied with, and the tensor."""
    name = operator_name(value)
    if name not in ("relax.multiply", "relax.divide"):
        return None
    for inner, factor in (value.args, reversed(value.args)):
        if g.is_constant(factor) and g.array(factor).size == 1:
            number = float(g.array(factor).ravel()[0])
            if name == "relax.multiply":
                return number, inner
            return (1 / number, inner) if inner is value.args[0] else None
    return None


def _viewed(places: Any, view: Any, shape: list[int]) -> Any:
    name = operator_name(view)
    if name == "relax.permute_dims":
        return places.transpose(permutation(view))
    return np.broadcast_to(places, shape) if name == "relax.broadcast_to" else places.reshape(shape)
