"""Fuse attention over few keys into one function: both products and the softmax between them.

For GPUs whose tensor cores have m16n8k16 products. Scores stay in shared memory, so a tile of
queries must fit there with all keys. Queries, keys and values are read as they are stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import tvm
from tvm import relax, te, tirx

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import OPAQUE, OPERATOR, permutation, sizes_of
from mallorn.graphc.matmul.fuse_transposes_into_batched_matmul import factor_of

PRODUCT, TRANSPOSE, CAST = "relax.matmul", "relax.permute_dims", "relax.astype"
_SOFTMAX: Final = "relax.nn.softmax"
_SCALES: Final = ("relax.multiply", "relax.divide")
_HALVES: Final = ("float16", "bfloat16")
_SUMS: Final = "float32"
_SIDE: Final = 16  # of a fragment of tensor cores
_WARP: Final = 32  # keys are padded to a multiple, because a warp computes their weights
_WIDEST: Final = 128  # head
_UNLIKE: Final = "the softmax is not of a product of queries and keys, scaled, then masked"
_OLDEST: Final = 80  # compute capability


@dataclass(frozen=True)
class ShortAttention:
    """Attention of stacked heads (axes a0, a1, ...) of queries i over keys j, of width d.

    Each tensor's axes are in the order in which it is stored.
    """

    sizes: dict[str, int]
    queries: Sequence[str]
    keys: Sequence[str]
    values: Sequence[str]
    mask: Sequence[str] | None  # an axis of length 1 is "1"
    result: Sequence[str]
    scale: float
    dtype: str


class FuseShortAttention(Pass[tuple[ShortAttention, list[Any]]]):
    """Fuses attention of 16-bit factors over few keys into one function, for tensor cores."""

    name, match = "fuse_short_attention", (CAST,)
    dtype = ""
    after = ("half_products", "round_before_moves")

    def __init__(self) -> None:
        super().__init__()

    def check(self, call: Any, g: Graph) -> tuple[ShortAttention, list[Any]]:
        product, order = _only_producer(call, g), None
        if product is not None and operator_name(product) == TRANSPOSE:
            order, product = permutation(product), _only_producer(product, g)
        if product is None or operator_name(product) != PRODUCT:
            raise Leave
        chain = g.chain(product.args[0], (CAST, _SOFTMAX, "relax.add", *_SCALES))
        names = [operator_name(each) for each in chain.calls]
        if names[-2:] != [_SOFTMAX, CAST]:
            raise Leave  # not attention
        scores, (*terms, softmax, _) = chain.source, chain.calls
        if scores is None or operator_name(scores) != PRODUCT:
            raise Leave(_UNLIKE)
        if int(softmax.attrs.axis) not in (-1, softmax.ty.ndim - 1):
            raise Leave("the softmax is not over the last axis")
        scale, mask = _scale_and_mask(terms, g)
        stack = [f"a{axis}" for axis in range(scores.ty.ndim - 2)]
        tensors = [*scores.args, product.args[1]]
        if not all(isinstance(tensor, relax.Var) for tensor in tensors):
            raise Leave("a factor is constant")
        types = {str(tensor.ty.dtype) for tensor in tensors}
        if len(types | {str(call.ty.dtype)}) > 1 or not types <= {*_HALVES}:
            raise Leave("the factors do not have 16 bits")
        if len({sizes_of(tensor)[:-2] for tensor in tensors}) > 1 or not stack:
            raise Leave("queries, keys and values are not stacks of equally many heads")
        *heads, queries, width = sizes_of(tensors[0])
        keys, value_width = sizes_of(tensors[2])[-2:]
        if width != value_width or width % _SIDE or width > _WIDEST:
            raise Leave(f"heads are not up to {_WIDEST} and a multiple of {_SIDE} wide")
        if (reason := _obstacle(keys)) is not None:
            raise Leave(reason)
        factors = [factor_of(tensor, g, True) for tensor in tensors]
        axes = [
            [axis for _, axis in sorted(zip(factor.axes, [*stack, *names], strict=True))]
            for factor, names in zip(factors, ("id", "dj", "jd"), strict=True)
        ]
        result = [[*stack, *"id"][axis] for axis in order or range(len(stack) + 2)]
        if any(each[-1] != "d" for each in (*axes, result)):
            raise Leave("the numbers of a head do not lie together")
        of_mask = None
        if mask is not None:
            pairs = list(zip(reversed([*stack, *"ij"]), reversed(sizes_of(mask)), strict=False))
            of_mask = ["1" if size == 1 else axis for axis, size in reversed(pairs)]
        sizes = dict(zip([*stack, *"ijd"], [*heads, queries, keys, width], strict=True))
        facts = ShortAttention(sizes, *axes, of_mask, result, scale, str(call.ty.dtype))
        return facts, [factor.value for factor in factors] + ([] if mask is None else [mask])

    def rewrite(self, call: Any, facts: tuple[ShortAttention, list[Any]], g: Graph) -> Any:
        attention, arguments = facts
        return g.call_function("short_attention", short_attention_function(attention), arguments, call.ty)


def _only_producer(call: Any, g: Graph) -> Any | None:
    """Return the call whose result only this call reads."""
    return g.producer(call.args[0]) if g.has_one_reader(call.args[0]) else None


def _scale_and_mask(terms: Sequence[Any], g: Graph) -> tuple[float, Any | None]:
    """Return the factor of scores, and what is added to them then."""
    scale, mask = 1.0, None
    for call in terms:
        other = call.args[1]
        if mask is not None or other.ty.dtype != _SUMS:
            raise Leave(_UNLIKE)
        if operator_name(call) == "relax.add":
            mask = other
        elif g.is_constant(other) and g.array(other).size == 1:
            factor = float(g.array(other).item())
            scale *= factor if operator_name(call) == _SCALES[0] else 1 / factor
        else:
            raise Leave(_UNLIKE)
    return scale, mask


def _obstacle(keys: int) -> str | None:
    """Return why this target cannot keep scores of so many keys in shared memory; None if it can.

    All kernels may have `max_shared_memory_per_block`; a tile has 16 queries' scores and weights.
    """
    attributes = tvm.target.Target.current().attrs
    digits = "".join(filter(str.isdigit, str(attributes.get("arch", ""))))
    if not digits or int(digits) < _OLDEST:
        return "the tensor cores have no instruction for fragments of 16 by 16 numbers"
    padded = -(-keys // _WARP) * _WARP + _WARP
    if _SIDE * padded * (4 + 2) > int(attributes["max_shared_memory_per_block"]):
        return "scores of so many keys do not fit into shared memory"
    return None


def short_attention_function(facts: ShortAttention) -> Any:
    """Build the function of queries, keys, values and the mask, if any.

    `workers/tvm/cuda_sketches/short_attention.py` schedules its eleven blocks. Padded keys
    get no weight.
    """
    sizes = facts.sizes
    stack = [axis for axis in sizes if axis not in "ijd"]
    batch, width = prod(sizes[axis] for axis in stack), sizes["d"]
    rows, keys = (-(-sizes[axis] // unit) * unit for axis, unit in (("i", _SIDE), ("j", _WARP)))

    def tensor(axes: Sequence[str], dtype: str, name: str) -> Any:
        return te.placeholder([sizes.get(axis, 1) for axis in axes], dtype, name)

    def element(source: Any, axes: Sequence[str], batch_index: Any, **indices: Any) -> Any:
        for axis in reversed(stack):
            indices[axis] = batch_index % sizes[axis] if axis != stack[0] else batch_index
            batch_index = batch_index // sizes[axis]
        return source(*(indices.get(axis, 0) for axis in axes))

    def copy(name: str, axes: Sequence[str], axis: str, extent: int) -> tuple[Any, Any]:
        source, zero = tensor(axes, facts.dtype, name[0]), tirx.const(0, facts.dtype)

        def value(b: Any, r: Any, c: Any) -> Any:
            stored = element(source, axes, b, **{axis: r, "d": c})
            return stored if extent == sizes[axis] else tirx.if_then_else(r < sizes[axis], stored, zero)

        return source, te.compute((batch, extent, width), value, name)

    q, queries = copy("queries", facts.queries, "i", rows)
    k, all_keys = copy("keys", facts.keys, "j", keys)
    v, values = copy("values", facts.values, "j", keys)
    mask = None if facts.mask is None else tensor(facts.mask, _SUMS, "mask")
    of_width, *of_keys = (te.reduce_axis((0, extent)) for extent in (width, keys, keys, keys))

    def score(b: Any, i: Any, j: Any) -> Any:
        return te.sum(
            queries[b, i, of_width].astype(_SUMS) * all_keys[b, j, of_width].astype(_SUMS), of_width
        )

    def logit(b: Any, i: Any, j: Any) -> Any:
        value = scores[b, i, j] * tirx.const(facts.scale, _SUMS)
        if mask is not None and facts.mask is not None:
            value = value + element(mask, facts.mask, b, i=tirx.min(i, sizes["i"] - 1), j=j)
        is_key = j < sizes["j"]
        return value if keys == sizes["j"] else tirx.if_then_else(is_key, value, tirx.min_value(_SUMS))

    def power(b: Any, i: Any, j: Any) -> Any:
        return tirx.exp(logits[b, i, j] - top[b, i])

    def weight(b: Any, i: Any, j: Any) -> Any:
        return (powers[b, i, j] * (tirx.const(1, _SUMS) / total[b, i])).astype(facts.dtype)

    def weighted(b: Any, i: Any, c: Any) -> Any:
        j = of_keys[2]
        return te.sum(weights[b, i, j].astype(_SUMS) * values[b, j, c].astype(_SUMS), j)

    def result(*indices: Any) -> Any:
        at, place = dict(zip(facts.result, indices, strict=True)), 0
        for axis in stack:
            place = place * sizes[axis] + at[axis]
        return sums[place, at["i"], at["d"]].astype(facts.dtype)

    table = batch, rows, keys
    scores = te.compute(table, score, "scores")
    logits = te.compute(table, logit, "logits")
    top = te.compute(table[:2], lambda b, i: te.max(logits[b, i, of_keys[0]], of_keys[0]), "top")
    powers = te.compute(table, power, "powers")
    total = te.compute(table[:2], lambda b, i: te.sum(powers[b, i, of_keys[1]], of_keys[1]), "total")
    weights = te.compute(table, weight, "weights")
    sums = te.compute((batch, rows, width), weighted, "sums", attrs={OPERATOR: "attention"})
    y = te.compute([sizes[axis] for axis in facts.result], result, "y")
    arguments = [q, k, v, *([] if mask is None else [mask]), y]
    function = te.create_prim_func(arguments, index_dtype_override="int64")
    return function.without_attr("global_symbol").with_attr("op_pattern", OPAQUE)
