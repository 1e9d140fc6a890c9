"""Attention over a cache of any length as one tensor function.

Queries that share a head's cache are computed together, in pieces of the cache whose scores stay in registers
and the first cache.
"""

from math import gcd, log
from typing import Any

from graphc.core import graph_rewriting, vector_lanes

PIECE, QUERIES = 64, 8  # of a cache, and that are computed together
# Of float32, and of what e to that power is more than nothing.
LOWEST, LEAST = -3.4028234663852886e38, -88.0
# Of e to the power of a small number, after the first two terms.
POLYNOMIAL = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_POWER = 'T.reinterpret("float32", T.shift_left(T.Cast("int32", e[r, i]) + 127, 23))'  # of 2


def cached_attention_function(
    shape: Any, rows: int, masks: list[list[int]], scale: float, after: float
) -> Any:
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
