"""Attention over caches of any length, as one function that reads them once.

TVM's kernels for sizes that it does not know are plain loops. Here queries that share a head's cache are
computed together, in pieces of the cache whose scores stay in registers and the first cache.
"""

from collections.abc import Mapping
from math import gcd, log, prod
from typing import Any, NamedTuple

import numpy as np
import tvm
from tvm import relax

from graphc.core import graph_rewriting, vector_lanes

PIECE, QUERIES = 64, 8  # of a cache, and that are computed together
LOWEST, LEAST = -3.4028234663852886e38, -88.0  # float32, and of what e to that power is more than nothing
# Of e to the power of a small number, after the first two terms.
POLYNOMIAL = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
PRODUCT = "relax.matmul"
_POWER = 'T.reinterpret("float32", T.shift_left(T.Cast("int32", e[r, i]) + 127, 23))'  # of 2
_VIEWS = ("relax.reshape", "relax.permute_dims", "relax.broadcast_to", "relax.expand_dims", "relax.squeeze")


class Cache(NamedTuple):
    """What a product reads through views: a tensor of [batch, heads, length, numbers], and its factor."""

    tensor: Any
    scale: float


def attention(length: Any, sample: int) -> Any:
    """The pass that rewrites it where a cache is as long as `length` says; `sample` is one such length."""
    return graph_rewriting.graph_pass(
        "Attention", lambda builder, graph: _rewritten(builder, graph, length, sample)
    )


def _rewritten(builder: Any, graph: Any, length: Any, sample: int) -> Any:
    network = _Network(builder, relax.analysis.get_var2val(graph), length, sample)

    def rewrite(call: Any, _: Any) -> Any:
        found = network.rewritten(call)
        return call if found is None else found

    pattern = relax.dpl.is_op(PRODUCT)(varg_default_wildcard=True)
    return relax.dpl.rewrite_call(pattern, rewrite, graph)


class _Network:
    def __init__(self, builder: Any, values: Mapping[Any, Any], length: Any, sample: int) -> None:
        self._builder, self._values, self._length, self._sample = builder, values, length, sample

    def rewritten(self, call: Any) -> Any | None:
        """The weighted sum of an attention as a call of its function; None for other products."""
        weights, value = call.args
        scores = self._scores(weights)
        if scores is None or not self._grows(weights):
            return None
        product, mask, scale = scores
        query = product.args[0]
        stack, rows = self._at(call)[:-2], self._at(call)[-2]
        keys = self._cache(product.args[1], prod(stack), transposed=True)
        values = self._cache(value, prod(stack), transposed=False)
        if keys is None or values is None or len(stack) > 2 or self._grows(query):
            return None
        numbers = self._at(keys.tensor)[-1]
        if numbers != self._at(values.tensor)[-1] or self._at(query)[-1] != numbers:
            return None
        return self._call(call, query, keys, values, mask, (scale * keys.scale, values.scale, rows))

    def _call(self, call: Any, query: Any, keys: Cache, values: Cache, mask: Any, given: Any) -> Any:
        scale, after, rows = given
        batch, heads, _, numbers = self._at(keys.tensor)
        each = prod(self._at(call)[:-2]) // (batch * heads) * rows
        shape = batch, heads, each, numbers
        masks = self._mask(mask)
        function = _function(shape, rows, [self._at(m) for m in masks], scale, after)
        named = self._builder.add_func(function, "attention")
        args = [relax.op.reshape(query, shape), keys.tensor, values.tensor, *masks]
        found = relax.call_tir(named, args, relax.TensorType(shape, "float32"))
        return relax.op.reshape(found, call.ty.shape)

    def _mask(self, mask: Any) -> list[Any]:
        if mask is None:
            return []
        missing = 4 - mask.ty.ndim
        return [relax.op.expand_dims(mask, list(range(missing))) if missing else mask]

    def _scores(self, weights: Any) -> Any | None:
        """The product of queries and keys, what is added to it, and its factor."""
        value = self._call_of(weights)
        if _is(value, "relax.where"):  # rows that see nothing
            value = self._call_of(value.args[2])
        if not _is(value, "relax.nn.softmax") or int(value.attrs.axis) not in (-1, value.ty.ndim - 1):
            return None
        scores, mask = self._call_of(value.args[0]), None
        if _is(scores, "relax.add"):
            one, other = scores.args
            scores, mask = self._call_of(one), other
            if not self._leads(scores):
                scores, mask = self._call_of(other), one
        scale = 1.0
        while (found := self._scaled(scores)) is not None:
            by, inner = found
            scale, scores = scale * by, self._call_of(inner)
        if not _is(scores, PRODUCT) or (mask is not None and mask.ty.ndim > 4):
            return None
        return scores, mask, scale

    def _leads(self, value: Any) -> bool:
        while (found := self._scaled(value)) is not None:
            value = self._call_of(found[1])
        return _is(value, PRODUCT)

    def _scaled(self, value: Any) -> tuple[float, Any] | None:
        """A number that a tensor is multiplied with, and the tensor."""
        if not _is(value, "relax.multiply", "relax.divide"):
            return None
        for inner, factor in (value.args, reversed(value.args)):
            if isinstance(factor, tvm.ir.GenericConst) and factor.value.numpy().size == 1:
                number = float(factor.value.numpy().ravel()[0])
                if _is(value, "relax.multiply"):
                    return number, inner
                return (1 / number, inner) if inner is value.args[0] else None
        return None

    def _cache(self, factor: Any, count: int, transposed: bool) -> Cache | None:
        """The tensor that so many matrices are views of, if they are its heads in order."""
        views, scale, tensor = [], 1.0, factor
        while (value := self._call_of(tensor)) is not None:
            if (found := self._scaled(value)) is not None:
                scale, tensor = scale * found[0], found[1]
            elif _is(value, *_VIEWS):
                views.append(value)
                tensor = value.args[0]
            else:
                break
        shape = self._at(tensor)
        if len(shape) != 4 or not self._grows(tensor) or tensor.ty.dtype != "float32":
            return None
        places = np.arange(prod(shape)).reshape(shape)
        seen = places
        for view in reversed(views):
            seen = _viewed(seen, view, self._at(view))
        batch, heads, length, numbers = shape
        if count % (batch * heads):
            return None
        expected = np.repeat(places.reshape(batch * heads, length, numbers), count // (batch * heads), axis=0)
        expected = expected.swapaxes(1, 2) if transposed else expected
        alike = seen.size == expected.size and np.array_equal(seen.reshape(expected.shape), expected)
        return Cache(tensor, scale) if alike else None

    def _call_of(self, var: Any) -> Any:
        value = self._values.get(var) if isinstance(var, relax.Var) else None
        return value if isinstance(value, relax.Call) else None

    def _at(self, value: Any) -> list[int]:
        """Its sizes at the sample's length."""
        sizes: list[int] = graph_rewriting.sizes_at(value.ty.shape, self._length, self._sample)
        return sizes

    def _grows(self, value: Any) -> bool:
        return bool(
            self._at(value) != graph_rewriting.sizes_at(value.ty.shape, self._length, self._sample + 1)
        )


def _is(value: Any, *operators: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") in operators


def _viewed(places: Any, view: Any, shape: list[int]) -> Any:
    if _is(view, "relax.permute_dims"):
        axes = view.attrs.axes
        return places.transpose(None if axes is None else [int(axis) for axis in axes])
    if _is(view, "relax.broadcast_to"):
        return np.broadcast_to(places, shape)
    return places.reshape(shape)


def _function(shape: Any, rows: int, masks: list[list[int]], scale: float, after: float) -> Any:
    """Queries of [batch, heads of the cache, queries of a head, numbers]: `rows` of each head in order."""
    batch, heads, each, numbers = shape
    wide = gcd(numbers, vector_lanes.lanes())
    block = graph_rewriting.largest_factor(each, QUERIES)
    blocks, parts = each // block, range(numbers // wide)
    few, all_ = (f"0:{batch}, 0:{heads}, 0:{length}, 0:{numbers}" for length in (each, "n"))
    b, g = f"vj // {heads * blocks}", f"vj // {blocks} % {heads}"
    query, at = f"vj % {blocks} * {block} + r", f"p * {PIECE} + t"
    given, read, added = _masked(masks[0], (b, g, query, at), each // rows, rows) if masks else ("", "", "")
    dot = [
        _vector(
            f"a[r, i] = a[r, i] + q[{b}, {g}, {query}, {c * wide} + i] * k[{b}, {g}, {at}, {c * wide} + i]",
            wide,
        )
        for c in parts
    ]
    summed = [
        _vector(
            f"o[r, {c * wide} + i] = o[r, {c * wide} + i] + s[r, t] * v[{b}, {g}, {at}, {c * wide} + i]", wide
        )
        for c in parts
    ]
    return graph_rewriting.parsed(f"""
n = TypeVar("n")
@T.prim_func(private=True, s_tir=True)
def main(
    q: T.Buffer(({batch}, {heads}, {each}, {numbers}), "float32"),
    k: T.Buffer(({batch}, {heads}, n, {numbers}), "float32"),
    v: T.Buffer(({batch}, {heads}, n, {numbers}), "float32"),
    {given}y: T.Buffer(({batch}, {heads}, {each}, {numbers}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}, "tirx.is_scheduled": True}})
    for job in T.parallel({batch * heads * blocks}):
        with T.sblock("attention"):
            vj = T.axis.spatial({batch * heads * blocks}, job)
            T.reads(q[{few}], k[{all_}], v[{all_}]{read})
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
                        {_lines(_halves("a", wide, "{} + {}"), 24)}
                        s[r, t] = a[r, 0] * T.float32({scale!r}){added}
                for r in range({block}):
                    {_vector("z[r, i] = s[r, i]", PIECE)}
                    {_lines(_halves("z", PIECE, "T.max({}, {})"), 20)}
                    fades[r] = most[r]
                    most[r] = T.max(most[r], z[r, 0])
                    fades[r] = T.exp(fades[r] - most[r])
                    {_vector(f"z[r, i] = T.max(s[r, i] - most[r], T.float32({LEAST}))", PIECE)}
                    {_vector(f"e[r, i] = T.floor(z[r, i] * T.float32({1 / log(2)}) + T.float32(0.5))", PIECE)}
                    {_vector(f"z[r, i] = z[r, i] - e[r, i] * T.float32({log(2)})", PIECE)}
                    {_vector(f"s[r, i] = {_polynomial()}", PIECE)}
                    {_vector(f"s[r, i] = s[r, i] * {_POWER}", PIECE)}
                    {_vector("z[r, i] = s[r, i]", PIECE)}
                    {_lines(_halves("z", PIECE, "{} + {}"), 20)}
                    total[r] = total[r] * fades[r] + z[r, 0]
                    {_vector("o[r, i] = o[r, i] * fades[r]", numbers)}
                for t in range(T.min(T.int64({PIECE}), n - p * {PIECE})):
                    for r in T.unroll({block}):
                        {_lines(summed, 24)}
            for r in range({block}):
                most[r] = T.Select(total[r] > T.float32(0), T.float32({after!r}) / total[r], T.float32(0))
                {_vector(f"y[{b}, {g}, {query}, i] = o[r, i] * most[r]", numbers)}
""")


def _masked(
    sizes: list[int], places: tuple[str, str, str, str], heads: int, rows: int
) -> tuple[str, str, str]:
    """What is added to scores: its parameter, what is read of it, and the term."""
    batch, group, query, at = places
    length = "n" if sizes[3] != 1 else "1"
    shape = ", ".join([*map(str, sizes[:3]), length])
    region = ", ".join(f"0:{size}" for size in [*sizes[:3], length])
    spots = [batch, f"({group}) * {heads} + ({query}) // {rows}", f"({query}) % {rows}", at]
    term = ", ".join("0" if size == 1 else spot for size, spot in zip(sizes, spots, strict=True))
    return f'm: T.Buffer(({shape}), "float32"),\n    ', f", m[{region}]", f" + m[{term}]"


def _polynomial() -> str:
    """e to the power of z, which is near zero, as TVM's own fast form has it."""
    value = f"T.float32({POLYNOMIAL[0]})"
    for factor in POLYNOMIAL[1:]:
        value = f"({value} * z[r, i] + T.float32({factor}))"
    return f"({value} * z[r, i] + T.float32(1)) * z[r, i] + T.float32(1)"


def _halves(name: str, wide: int, how: str) -> list[str]:
    """Statements that reduce a row's vector into its first place."""
    found, half = [], wide // 2
    while half:
        one, other = f"{name}[r, i]", f"{name}[r, {half} + i]"
        found.append(_vector(f"{one} = {how.format(one, other)}", half))
        half //= 2
    return found


def _vector(statement: str, wide: int) -> str:
    return f"for i in T.vectorized({wide}): {statement}"


def _lines(statements: list[str], indent: int) -> str:
    return ("\n" + " " * indent).join(statements) or "pass"
