"""Fuse attention over key/value caches of variable length into one function, and append to them.

TVM's kernels for unknown sizes are plain loops. The function computes up to 8 queries of
one cache head together, 64 cache positions at a time, so that scores stay in the L1 cache.
"""

from dataclasses import dataclass
from math import gcd, log, prod
from typing import Any, NamedTuple

import numpy as np
from tvm import relax

from mallorn.graphc.core import graph_rewriting, vector_lanes
from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name

PIECE, QUERIES = 64, 8  # cache positions, and queries, that are processed together
# The lowest float32, and the lowest exponent for which exp is not 0.
LOWEST, LEAST = -3.4028234663852886e38, -88.0

PRODUCT = "relax.matmul"
_VIEWS = ("relax.reshape", "relax.permute_dims", "relax.broadcast_to", "relax.expand_dims", "relax.squeeze")


class CacheView(NamedTuple):
    """A key or value cache that a matmul reads, and the constant that multiplies it."""

    tensor: Any
    scale: float


class Scores(NamedTuple):
    """Attention scores: the product of queries and keys, its mask (if any) and scale."""

    product: Any
    mask: Any | None
    scale: float


@dataclass(frozen=True)
class CachedAttention:
    """Attention over two caches; `rows` is the number of queries per attention head."""

    scores: Scores
    keys: CacheView
    values: CacheView
    rows: int


class FuseCachedAttention(Pass[CachedAttention]):
    """Fuses attention over caches whose length is the variable `length` into one function.

    It compares shapes after setting the length to the number `sample`.
    """

    name, match = "fuse_cached_attention", (PRODUCT,)
    any_size = True

    def __init__(self, length: Any, sample: int) -> None:
        super().__init__()
        self._length, self._sample = length, sample

    def check(self, call: Any, g: Graph) -> CachedAttention:
        weights, value = call.args
        scores = _scores(weights, g)
        if not self._has_growing_size(weights):
            raise Leave("none of the operands has the growing size of a cache")
        query, stack = scores.product.args[0], self._sizes(call)[:-2]
        if len(stack) > 2 or self._has_growing_size(query):
            raise Leave("the queries have more than two stack axes, or grow with the cache")
        keys = self._cache(scores.product.args[1], prod(stack), g, is_transposed=True)
        values = self._cache(value, prod(stack), g, is_transposed=False)
        if not self._sizes(keys.tensor)[-1] == self._sizes(values.tensor)[-1] == self._sizes(query)[-1]:
            raise Leave("keys, values and queries differ in the size of a head")
        return CachedAttention(scores, keys, values, self._sizes(call)[-2])

    def rewrite(self, call: Any, facts: CachedAttention, g: Graph) -> Any:
        batch, heads, _, numbers = self._sizes(facts.keys.tensor)
        queries = prod(self._sizes(call)[:-2]) // (batch * heads) * facts.rows
        shape = batch, heads, queries, numbers
        masks = []
        if (mask := facts.scores.mask) is not None:
            leading_axes = list(range(4 - mask.ty.ndim))
            masks = [relax.op.expand_dims(mask, leading_axes) if leading_axes else mask]
        scale = facts.scores.scale * facts.keys.scale
        sizes = [self._sizes(mask) for mask in masks]
        function = cached_attention_function(shape, facts.rows, sizes, scale, facts.values.scale)
        query = relax.op.reshape(facts.scores.product.args[0], shape)
        arguments = [query, facts.keys.tensor, facts.values.tensor, *masks]
        attention = g.call_function("attention", function, arguments, relax.TensorType(shape, "float32"))
        return relax.op.reshape(attention, call.ty.shape)

    def _cache(self, factor: Any, count: int, g: Graph, is_transposed: bool) -> CacheView:
        """Return the cache that a matmul operand is a scaled view of, or raise Leave."""
        views, scale, tensor = [], 1.0, factor
        while (value := g.producer(tensor)) is not None:
            if (scaled := _split_scalar_factor(value, g)) is not None:
                scale, tensor = scale * scaled[0], scaled[1]
            elif operator_name(value) in _VIEWS:
                views.append(value)
                tensor = value.args[0]
            else:
                break
        shape = self._sizes(tensor)
        if len(shape) != 4 or not self._has_growing_size(tensor) or tensor.ty.dtype != "float32":
            raise Leave("the keys or values are not a float32 cache with four axes")
        places = viewed_places = np.arange(prod(shape)).reshape(shape)
        for view in reversed(views):
            shape = self._sizes(view)
            if operator_name(view) == "relax.permute_dims":
                viewed_places = viewed_places.transpose(graph_rewriting.permutation(view))
            elif operator_name(view) == "relax.broadcast_to":
                viewed_places = np.broadcast_to(viewed_places, shape)
            else:
                viewed_places = viewed_places.reshape(shape)
        batch, heads, length, numbers = places.shape
        repeats, remainder = divmod(count, batch * heads)
        ordered = np.repeat(places.reshape(batch * heads, length, numbers), repeats, axis=0)
        ordered = ordered.swapaxes(1, 2) if is_transposed else ordered
        if remainder or not np.array_equal(viewed_places.ravel(), ordered.ravel()):
            raise Leave("the keys or values are not the heads of a cache in their order")
        return CacheView(tensor, scale)

    def _sizes(self, value: Any) -> list[int]:
        return graph_rewriting.sizes_at(value.ty.shape, self._length, self._sample)

    def _has_growing_size(self, value: Any) -> bool:
        return self._sizes(value) != graph_rewriting.sizes_at(value.ty.shape, self._length, self._sample + 1)


def _scores(weights: Any, g: Graph) -> Scores:
    value = g.producer(weights)
    if value is not None and operator_name(value) == "relax.where":  # guards rows that are masked completely
        value = g.producer(value.args[2])
    if value is None or operator_name(value) != "relax.nn.softmax":
        raise Leave("the weights of the product do not come from a softmax")
    if int(value.attrs.axis) not in (-1, value.ty.ndim - 1):
        raise Leave("the softmax is not over the last axis")
    scores, mask = g.producer(value.args[0]), None
    if scores is not None and operator_name(scores) == "relax.add":
        left, right = scores.args
        _, product = _strip_scalar_factors(g.producer(left), g)
        is_left = product is not None and operator_name(product) == PRODUCT
        scores, mask = (left, right) if is_left else (right, left)
        scores = g.producer(scores)
    scale, product = _strip_scalar_factors(scores, g)
    is_deep = mask is not None and mask.ty.ndim > 4
    if is_deep or product is None or operator_name(product) != PRODUCT:
        raise Leave("the softmax is not of a product of queries and keys")
    return Scores(product, mask, scale)


def _strip_scalar_factors(value: Any | None, g: Graph) -> tuple[float, Any | None]:
    """Return the product of scalars that multiply a call's result, and the unscaled call."""
    scale = 1.0
    while value is not None and (scaled := _split_scalar_factor(value, g)) is not None:
        scale, value = scale * scaled[0], g.producer(scaled[1])
    return scale, value


def _split_scalar_factor(value: Any, g: Graph) -> tuple[float, Any] | None:
    """Return the scalar factor and the tensor if a call scales by a constant, else None."""
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


# Coefficients of exp(z) for small z, without the two lowest powers.
POLYNOMIAL = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_POWER = 'T.reinterpret("float32", T.shift_left(T.Cast("int32", e[r, i]) + 127, 23))'  # 2**e


def cached_attention_function(
    shape: Any, rows: int, masks: list[list[int]], scale: float, factor: float
) -> Any:
    """Build the function for an attention of this shape.

    `shape` is [batch, cache heads, queries per cache head, numbers per query]. Attention
    heads that share a cache head are stacked on the third axis, each with `rows` queries.
    `scale` multiplies the scores, `factor` the output; `masks` has the mask's shape, if any.
    """
    batch, heads, queries, numbers = shape
    wide = gcd(numbers, vector_lanes.lanes())
    block = graph_rewriting.largest_factor(queries, QUERIES)
    blocks, parts = queries // block, range(numbers // wide)
    few, all_ = (f"0:{batch}, 0:{heads}, 0:{length}, 0:{numbers}" for length in (queries, "n"))
    b, g = f"vj // {heads * blocks}", f"vj // {blocks} % {heads}"
    query, key = f"vj % {blocks} * {block} + r", f"p * {PIECE} + t"
    mask_param, mask_region, mask_term = (
        _format_mask(masks[0], (b, g, query, key), queries // rows, rows) if masks else ("", "", "")
    )
    dot = [
        _vector(
            f"a[r, i] = a[r, i] + q[{b}, {g}, {query}, {c * wide} + i] * k[{b}, {g}, {key}, {c * wide} + i]",
            wide,
        )
        for c in parts
    ]
    sums = [
        _vector(
            f"o[r, {c * wide} + i] = o[r, {c * wide} + i] + s[r, t] * v[{b}, {g}, {key}, {c * wide} + i]",
            wide,
        )
        for c in parts
    ]
    power = f"T.float32({POLYNOMIAL[0]})"  # exp(z) for z near zero, as TVM's fast exp
    for coefficient in POLYNOMIAL[1:]:
        power = f"({power} * z[r, i] + T.float32({coefficient}))"
    power = f"({power} * z[r, i] + T.float32(1)) * z[r, i] + T.float32(1)"
    return graph_rewriting.parse_tvmscript(f"""
n = TypeVar("n")
@T.prim_func(private=True, s_tir=True)
def main(
    q: T.Buffer(({batch}, {heads}, {queries}, {numbers}), "float32"),
    k: T.Buffer(({batch}, {heads}, n, {numbers}), "float32"),
    v: T.Buffer(({batch}, {heads}, n, {numbers}), "float32"),
    {mask_param}y: T.Buffer(({batch}, {heads}, {queries}, {numbers}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}, "tirx.is_scheduled": True}})
    for job in T.parallel({batch * heads * blocks}):
        with T.sblock("attention"):
            vj = T.axis.spatial({batch * heads * blocks}, job)
            T.reads(q[{few}], k[{all_}], v[{all_}]{mask_region})
            T.writes(y[{few}])
            T.sblock_attr({{"{graph_rewriting.OPERATOR}": "attention"}})
            a = T.sblock_alloc_buffer(({block}, {wide}), "float32")
            s = T.sblock_alloc_buffer(({block}, {PIECE}), "float32")
            z = T.sblock_alloc_buffer(({block}, {PIECE}), "float32")
            e = T.sblock_alloc_buffer(({block}, {PIECE}), "float32")
            o = T.sblock_alloc_buffer(({block}, {numbers}), "float32")
            most = T.sblock_alloc_buffer(({block},), "float32")
            total = T.sblock_alloc_buffer(({block},), "float32")
            fades = T.sblock_alloc_buffer(({block},), "float32")
            for r in range({block}):
                most[r] = T.float32({LOWEST})
                total[r] = T.float32(0)
                {_vector("o[r, i] = T.float32(0)", numbers)}
            for p in range((n + {PIECE - 1}) // {PIECE}):
                for r in range({block}):
                    {_vector('s[r, i] = T.float32("-inf")', PIECE)}
                for t in range(T.min(T.int64({PIECE}), n - p * {PIECE})):
                    for r in T.unroll({block}):
                        {_vector("a[r, i] = T.float32(0)", wide)}
                        {_lines(dot, 24)}
                        {_lines(_format_halving_reduction("a", wide, "{} + {}"), 24)}
                        s[r, t] = a[r, 0] * T.float32({scale!r}){mask_term}
                for r in range({block}):
                    {_vector("z[r, i] = s[r, i]", PIECE)}
                    {_lines(_format_halving_reduction("z", PIECE, "T.max({}, {})"), 20)}
                    fades[r] = most[r]
                    most[r] = T.max(most[r], z[r, 0])
                    fades[r] = T.exp(fades[r] - most[r])
                    {_vector(f"z[r, i] = T.max(s[r, i] - most[r], T.float32({LEAST}))", PIECE)}
                    {_vector(f"e[r, i] = T.floor(z[r, i] * T.float32({1 / log(2)}) + T.float32(0.5))", PIECE)}
                    {_vector(f"z[r, i] = z[r, i] - e[r, i] * T.float32({log(2)})", PIECE)}
                    {_vector(f"s[r, i] = {power}", PIECE)}
                    {_vector(f"s[r, i] = s[r, i] * {_POWER}", PIECE)}
                    {_vector("z[r, i] = s[r, i]", PIECE)}
                    {_lines(_format_halving_reduction("z", PIECE, "{} + {}"), 20)}
                    total[r] = total[r] * fades[r] + z[r, 0]
                    {_vector("o[r, i] = o[r, i] * fades[r]", numbers)}
                for t in range(T.min(T.int64({PIECE}), n - p * {PIECE})):
                    for r in T.unroll({block}):
                        {_lines(sums, 24)}
            for r in range({block}):
                most[r] = T.Select(total[r] > T.float32(0), T.float32({factor!r}) / total[r], T.float32(0))
                {_vector(f"y[{b}, {g}, {query}, i] = o[r, i] * most[r]", numbers)}
""")


def _format_mask(
    sizes: list[int], places: tuple[str, str, str, str], heads: int, rows: int
) -> tuple[str, str, str]:
    """Return TVMScript for the mask: the parameter, the region read, and the term to add."""
    batch, group, query, place = places
    length = "n" if sizes[3] != 1 else "1"
    shape = ", ".join([*map(str, sizes[:3]), length])
    region = ", ".join(f"0:{size}" for size in [*sizes[:3], length])
    spots = [batch, f"({group}) * {heads} + ({query}) // {rows}", f"({query}) % {rows}", place]
    term = ", ".join("0" if size == 1 else spot for size, spot in zip(sizes, spots, strict=True))
    return f'm: T.Buffer(({shape}), "float32"),\n    ', f", m[{region}]", f" + m[{term}]"


def _format_halving_reduction(name: str, width: int, combine: str) -> list[str]:
    """Return statements that combine the `wide` numbers of each row in its first one."""
    statements, half = [], width // 2
    while half:
        left, right = f"{name}[r, i]", f"{name}[r, {half} + i]"
        statements.append(_vector(f"{left} = {combine.format(left, right)}", half))
        half //= 2
    return statements


def _vector(statement: str, wide: int) -> str:
    return f"for i in T.vectorized({wide}): {statement}"


def _lines(statements: list[str], indent: int) -> str:
    return ("\n" + " " * indent).join(statements) or "pass"


class VectorizeCacheConcat(Pass[list[Any]]):
    """Appends to caches of variable `length` by copying rows; checks shapes at `sample`.

    TVM's concat decides for each element which input it comes from, in plain loops.
    """

    name, match = "vectorize_cache_concat", ("relax.concat",)
    any_size = True

    def __init__(self, length: Any, sample: int) -> None:
        super().__init__()
        self._length, self._sample = length, sample

    def check(self, call: Any, g: Graph) -> list[Any]:
        parts = list(g.tuple_fields(call.args[0]))
        if len(parts) != 2 or call.ty.ndim != 4 or int(call.attrs.axis) not in (2, -2):
            raise Leave("the concat is not of two 4-D tensors along the third axis")
        cache, rows = (self._sizes(part, 0) for part in parts)
        next_cache = [*cache[:2], cache[2] + 1, cache[3]]
        if [self._sizes(part, 1) for part in parts] != [next_cache, rows]:
            raise Leave("only the first part may grow, by one row at a time")
        return parts

    def rewrite(self, call: Any, facts: list[Any], g: Graph) -> Any:
        batch, heads, rows, numbers = self._sizes(facts[1], 0)
        few, all_, longer = (f"0:{batch}, 0:{heads}, 0:{n}, 0:{numbers}" for n in (rows, "n", f"n + {rows}"))
        head = f"vj // {heads}, vj % {heads}"
        function = graph_rewriting.parse_tvmscript(f"""
n = TypeVar("n")
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({batch}, {heads}, n, {numbers}), "float32"),
    z: T.Buffer(({batch}, {heads}, {rows}, {numbers}), "float32"),
    y: T.Buffer(({batch}, {heads}, n + {rows}, {numbers}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}, "tirx.is_scheduled": True}})
    for job in T.parallel({batch * heads}):
        with T.sblock("appended"):
            vj = T.axis.spatial({batch * heads}, job)
            T.reads(x[{all_}], z[{few}])
            T.writes(y[{longer}])
            T.sblock_attr({{"{graph_rewriting.OPERATOR}": "appended"}})
            for t in range(n):
                for i in T.vectorized({numbers}): y[{head}, t, i] = x[{head}, t, i]
            for t in range({rows}):
                for i in T.vectorized({numbers}): y[{head}, n + t, i] = z[{head}, t, i]
""")
        return g.call_function("appended", function, facts, call.ty)

    def _sizes(self, part: Any, growth: int) -> list[int]:
        return graph_rewriting.sizes_at(part.ty.shape, self._length, self._sample + growth)
