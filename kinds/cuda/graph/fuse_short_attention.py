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
_SOFTMAX, _MULTIPLY, _DIVIDE, _ADD = "relax.nn.softmax", "relax.multiply", "relax.divide", "relax.add"
_SUMS: Final = "float32"
_SIDE: Final = 16  # of a fragment of tensor cores
_WARP: Final = 32  # keys are padded to a multiple, because a warp computes their weights
_WIDEST: Final = 128  # head
_OLDEST: Final = 80  # compute capability with m16n8k16 products


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
        chain = g.chain(call.args[0], (TRANSPOSE,))
        product = chain.source
        if product is None or operator_name(product) != PRODUCT or len(chain.calls) > 1:
            raise Leave
        softmax_chain = g.chain(product.args[0], (CAST, _SOFTMAX, _ADD, _MULTIPLY, _DIVIDE))
        names, scores = list(map(operator_name, softmax_chain.calls)), softmax_chain.source
        if names[-2:] != [_SOFTMAX, CAST]:
            raise Leave
        *terms, softmax, _ = softmax_chain.calls
        is_last = int(softmax.attrs.axis) in (-1, softmax.ty.ndim - 1)
        if scores is None or operator_name(scores) != PRODUCT or not is_last:
            raise Leave("the softmax is not over the keys of a product, scaled and masked")
        scale, mask = 1.0, None
        for term, name in zip(terms, names, strict=False):
            number = g.array(term.args[1]) if g.is_constant(term.args[1]) else None
            if name == _ADD and mask is None and term.args[1].ty.dtype == _SUMS:
                mask = term.args[1]
            elif mask is None and name != CAST and number is not None and number.size == 1:
                scale *= float(number.item()) if name == _MULTIPLY else 1 / float(number.item())
            else:
                raise Leave("the scores are not scaled by a number, then masked")
        tensors = [*scores.args, product.args[1]]
        *stack_sizes, queries, width = sizes_of(tensors[0])
        keys, value_width = sizes_of(tensors[2])[-2:]
        if (
            not all(isinstance(tensor, relax.Var) for tensor in tensors)
            or {str(value.ty.dtype) for value in (*tensors, call)} not in ({"float16"}, {"bfloat16"})
            or len({sizes_of(tensor)[:-2] for tensor in tensors}) > 1
            or not (width == value_width <= _WIDEST and width % _SIDE == 0)
        ):
            raise Leave(f"queries, keys and values are no 16-bit heads of n * {_SIDE} <= {_WIDEST} numbers")
        attributes = tvm.target.Target.current().attrs
        if int("".join(filter(str.isdigit, str(attributes["arch"])))) < _OLDEST:
            raise Leave("the GPU has no m16n8k16 products")
        # A tile of 16 queries has float32 scores and 16-bit weights, between rows of padding.
        row_bytes = (-(-keys // _WARP) + 1) * _WARP * (4 + 2)
        if _SIDE * row_bytes > int(attributes["max_shared_memory_per_block"]):
            raise Leave("scores of so many keys do not fit into shared memory")
        stack = [f"a{axis}" for axis in range(len(stack_sizes))]
        factors = [factor_of(tensor, g, True) for tensor in tensors]
        axes = [
            [axis for _, axis in sorted(zip(factor.axes, [*stack, *last_axes], strict=True))]
            for factor, last_axes in zip(factors, ("id", "dj", "jd"), strict=True)
        ]
        order = permutation(chain.calls[0]) if chain.calls else range(len(stack) + 2)
        result = [[*stack, *"id"][axis] for axis in order]
        if any(names[-1] != "d" for names in (*axes, result)):
            raise Leave("the numbers of a head do not lie together")
        mask_axes = None
        if mask is not None:
            pairs = zip([*stack, *"ij"][-mask.ty.ndim :], sizes_of(mask), strict=True)
            mask_axes = ["1" if size == 1 else axis for axis, size in pairs]
        sizes = dict(zip([*stack, *"ijd"], [*stack_sizes, queries, keys, width], strict=True))
        facts = ShortAttention(sizes, axes[0], axes[1], axes[2], mask_axes, result, scale, str(call.ty.dtype))
        return facts, [factor.value for factor in factors] + ([] if mask is None else [mask])

    def rewrite(self, call: Any, facts: tuple[ShortAttention, list[Any]], g: Graph) -> Any:
        attention, arguments = facts
        return g.call_function("short_attention", short_attention_function(attention), arguments, call.ty)


def short_attention_function(facts: ShortAttention) -> Any:
    """Build the function of queries, keys, values and the mask, if any.

    `kinds/cuda/sketches/short_attention.py` schedules its eleven blocks. Padded
    keys get no weight.
    """
    sizes = facts.sizes
    stack = [axis for axis in sizes if axis not in "ijd"]
    batch, width = prod(sizes[axis] for axis in stack), sizes["d"]
    rows, keys = (-(-sizes[axis] // unit) * unit for axis, unit in (("i", _SIDE), ("j", _WARP)))

    def tensor(axes: Sequence[str], dtype: str, name: str) -> Any:
        return te.placeholder([sizes.get(axis, 1) for axis in axes], dtype, name)

    def element(source: Any, axes: Sequence[str], head: Any, **indices: Any) -> Any:
        for axis in reversed(stack):
            indices[axis] = head % sizes[axis] if axis != stack[0] else head
            head = head // sizes[axis]
        return source(*(indices.get(axis, 0) for axis in axes))

    def copy(name: str, axes: Sequence[str], axis: str, extent: int) -> tuple[Any, Any]:
        source, zero = tensor(axes, facts.dtype, name[0]), tirx.const(0, facts.dtype)

        def value(b: Any, r: Any, c: Any) -> Any:
            number = element(source, axes, b, **{axis: r, "d": c})
            return number if extent == sizes[axis] else tirx.if_then_else(r < sizes[axis], number, zero)

        return source, te.compute((batch, extent, width), value, name)

    def product(left: Any, right: Any, axis: Any) -> Any:
        return te.sum(left.astype(_SUMS) * right.astype(_SUMS), axis)

    q, queries = copy("queries", facts.queries, "i", rows)
    k, all_keys = copy("keys", facts.keys, "j", keys)
    v, values = copy("values", facts.values, "j", keys)
    mask = None if facts.mask is None else tensor(facts.mask, _SUMS, "mask")
    d, m, n, j = (te.reduce_axis((0, extent)) for extent in (width, keys, keys, keys))

    def logit(b: Any, i: Any, j: Any) -> Any:
        value = scores[b, i, j] * tirx.const(facts.scale, _SUMS)
        if mask is not None and facts.mask is not None:
            value = value + element(mask, facts.mask, b, i=tirx.min(i, sizes["i"] - 1), j=j)
        is_key = j < sizes["j"]
        return value if keys == sizes["j"] else tirx.if_then_else(is_key, value, tirx.min_value(_SUMS))

    def weight(b: Any, i: Any, j: Any) -> Any:
        return (powers[b, i, j] * (tirx.const(1, _SUMS) / total[b, i])).astype(facts.dtype)

    def result(*indices: Any) -> Any:
        places = dict(zip(facts.result, indices, strict=True))
        head: Any = 0
        for axis in stack:
            head = head * sizes[axis] + places[axis]
        return sums[head, places["i"], places["d"]].astype(facts.dtype)

    table = batch, rows, keys
    scores = te.compute(table, lambda b, i, j: product(queries[b, i, d], all_keys[b, j, d], d), "scores")
    logits = te.compute(table, logit, "logits")
    top = te.compute(table[:2], lambda b, i: te.max(logits[b, i, m], m), "top")
    powers = te.compute(table, lambda b, i, j: tirx.exp(logits[b, i, j] - top[b, i]), "powers")
    total = te.compute(table[:2], lambda b, i: te.sum(powers[b, i, n], n), "total")
    weights = te.compute(table, weight, "weights")
    sums = te.compute(
        (batch, rows, width),
        lambda b, i, c: product(weights[b, i, j], values[b, j, c], j),
        "sums",
        attrs={OPERATOR: "attention"},
    )
    y = te.compute([sizes[axis] for axis in facts.result], result, "y")
    arguments = [q, k, v, *([] if mask is None else [mask]), y]
    function = te.create_prim_func(arguments, index_dtype_override="int64")
    return function.without_attr("global_symbol").with_attr("op_pattern", OPAQUE)
