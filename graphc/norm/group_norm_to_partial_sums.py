"""Group and instance norms of channels-last images: sums beside each other for all channels, in parts.

The importer spells them as means, variances and reshapes to groups, which leave rows of single channels, and
transposes around them.
"""

from functools import partial
from math import prod
from textwrap import indent
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard

from graphc.core import graph_rewriting

PART = 64  # pixels at most that are summed up by one core at a time
RESHAPE = "relax.reshape"

# Differences from the first pixel: sums of squares of them lose no digits to a large mean.
_PARTS = """
for k in range({chunks}):
    for i in T.vectorized({lanes}):
        y[vn, vp, 0, k * {lanes} + i] = T.float32(0)
        y[vn, vp, 1, k * {lanes} + i] = T.float32(0)
for r in range({part}):
    for k in range({chunks}):
        for i in T.vectorized({lanes}):
            d: T.let = x[vn, vp * {part} + r, k * {lanes} + i] - x[vn, 0, k * {lanes} + i]
            y[vn, vp, 0, k * {lanes} + i] = y[vn, vp, 0, k * {lanes} + i] + d
            y[vn, vp, 1, k * {lanes} + i] = y[vn, vp, 1, k * {lanes} + i] + d * d
"""

_SCALES = """
mean = T.sblock_alloc_buffer(({channels},), "float32")
square = T.sblock_alloc_buffer(({channels},), "float32")
middle = T.sblock_alloc_buffer((1,), "float32")
factor = T.sblock_alloc_buffer((1,), "float32")
for k in range({chunks}):
    for i in T.vectorized({lanes}):
        mean[k * {lanes} + i] = T.float32(0)
        square[k * {lanes} + i] = T.float32(0)
for p in range({parts}):
    for k in range({chunks}):
        for i in T.vectorized({lanes}):
            mean[k * {lanes} + i] = mean[k * {lanes} + i] + s[vn, p, 0, k * {lanes} + i]
            square[k * {lanes} + i] = square[k * {lanes} + i] + s[vn, p, 1, k * {lanes} + i]
for k in range({chunks}):
    for i in T.vectorized({lanes}):
        m: T.let = mean[k * {lanes} + i] * T.float32({share})
        square[k * {lanes} + i] = T.max(square[k * {lanes} + i] - m * mean[k * {lanes} + i], T.float32(0))
        mean[k * {lanes} + i] = m + x[vn, 0, k * {lanes} + i]
for g in range({groups}):
    middle[0] = T.float32(0)
    factor[0] = T.float32(0)
    for c in range({members}):
        middle[0] = middle[0] + mean[g * {members} + c]
    middle[0] = middle[0] * T.float32({member})
    for c in range({members}):
        e: T.let = mean[g * {members} + c] - middle[0]
        factor[0] = factor[0] + square[g * {members} + c] + T.float32({pixels}) * e * e
    factor[0] = T.float32(1) / T.sqrt(factor[0] * T.float32({share} * {member}) + T.float32({epsilon}))
    for c in range({members}):
        a: T.let = gamma[g * {members} + c] * factor[0]
        y[vn, 0, g * {members} + c] = a
        y[vn, 1, g * {members} + c] = beta[g * {members} + c] - middle[0] * a
"""


def find_norms(lanes: int = graph_rewriting.LANES) -> Any:
    """The pass that writes what the importer spells out as one operator, before layouts change."""
    return graph_rewriting.graph_pass("FindNorms", lambda _, graph: _find(graph, lanes))


def norms(lanes: int = graph_rewriting.LANES) -> Any:
    """The pass that computes the operator if channels are last and fill whole vectors."""
    return graph_rewriting.call_pass("Norms", {"relax.nn.group_norm": partial(_rewrite, lanes=lanes)})


def _find(graph: Any, lanes: int) -> Any:
    for operator, rewrite in ((RESHAPE, _grouped), ("relax.divide", _of_instances)):
        values = relax.analysis.get_var2val(graph)
        pattern = is_op(operator)(wildcard(), wildcard())
        graph = rewrite_call(pattern, partial(_if_fitting, rewrite, values, lanes), graph)
    return graph


def _if_fitting(rewrite: Any, values: Any, lanes: int, call: Any, _: Any) -> Any:
    shapes = [value.ty.shape for value in (call, call.args[0])]
    sizes = [size for shape in shapes for size in shape or [None]]
    known = all(isinstance(size, tvm.tirx.IntImm) for size in sizes)
    return rewrite(values, call) if known and _fills(call, lanes) else call


def _grouped(values: Any, call: Any) -> Any:
    """A norm of rows of groups between two reshapes, perhaps with gains of one and offsets of zero."""
    inner = _without_units(values, call.args[0])
    normed = _normed(values, inner) if inner is not None else None
    before = graph_rewriting.call_of(values, normed[0], RESHAPE) if normed else None
    if normed is None or before is None:
        return call
    rows, sizes = graph_rewriting.sizes_of(before), graph_rewriting.sizes_of(call)
    alike = graph_rewriting.sizes_of(before.args[0]) == sizes and len(rows) == 3 and rows[0] == sizes[0]
    if not alike or sizes[1] % rows[1]:
        return call
    return _operator(before.args[0], rows[1], normed[1])


def _of_instances(values: Any, call: Any) -> Any:
    normed = _normed(values, call)
    data = normed[0] if normed else None
    rows = graph_rewriting.call_of(values, data, RESHAPE) is not None
    if normed is None or rows:
        return call
    return _operator(data, int(call.ty.shape[1]), normed[1])


def _fills(call: Any, lanes: int) -> bool:
    """True if the channels of an image fill whole vectors, once they are last."""
    return bool(call.ty.dtype == "float32" and call.ty.ndim > 2 and int(call.ty.shape[1]) % lanes == 0)


def _operator(data: Any, groups: int, epsilon: float) -> Any:
    channels, axes = int(data.ty.shape[1]), list(range(2, data.ty.ndim))
    one, zero = (relax.const(np.full(channels, value, "float32")) for value in (1, 0))
    return relax.op.nn.group_norm(data, one, zero, groups, 1, axes, epsilon)


def _without_units(values: Any, var: Any) -> Any | None:
    """The quotient behind products with ones and sums with zeros."""
    for operator, unit in (("relax.add", 0), ("relax.multiply", 1)):
        call = graph_rewriting.call_of(values, var, operator)
        if call is not None and isinstance(call.args[1], tvm.ir.GenericConst):
            if np.any(call.args[1].value.numpy() != unit):
                return None
            var = call.args[0]
    return graph_rewriting.call_of(values, var, "relax.divide")


def _normed(values: Any, quotient: Any) -> tuple[Any, float] | None:
    """What is normed over all but its first two axes, and the epsilon."""
    difference = graph_rewriting.call_of(values, quotient.args[0], "relax.subtract")
    root = graph_rewriting.call_of(values, quotient.args[1], "relax.sqrt")
    total = graph_rewriting.call_of(values, root.args[0], "relax.add") if root is not None else None
    if difference is None or total is None or not isinstance(total.args[1], tvm.ir.GenericConst):
        return None
    data = difference.args[0]
    mean = graph_rewriting.call_of(values, difference.args[1], "relax.mean")
    variance = graph_rewriting.call_of(values, total.args[0], "relax.variance")
    if any(part is None or not part.args[0].same_as(data) or not _inner(part) for part in (mean, variance)):
        return None
    return (data, float(total.args[1].value.numpy())) if total.args[1].ty.ndim == 0 else None


def _inner(reduction: Any) -> bool:
    axes = [int(axis) % reduction.args[0].ty.ndim for axis in reduction.attrs.axis or ()]
    return bool(reduction.attrs.keepdims) and axes == list(range(2, reduction.args[0].ty.ndim))


def _rewrite(builder: Any, call: Any, lanes: int) -> Any:
    attrs, last, sizes = call.attrs, call.ty.ndim - 1, graph_rewriting.sizes_of(call)
    channel, axes = (
        int(attrs.channel_axis) % (last + 1),
        sorted(int(axis) % (last + 1) for axis in attrs.axes),
    )
    plain = call.ty.dtype == "float32" and attrs.center and attrs.scale
    if plain and channel == 1 and axes == list(range(2, last + 1)):
        return _spelled(call)
    if not plain or channel != last or axes != list(range(1, last)) or sizes[last] % lanes:
        return call
    batch, pixels, channels = sizes[0], prod(sizes[1:last]), sizes[last]
    part = max(size for size in range(1, min(PART, pixels) + 1) if pixels % size == 0)
    facts = {"batch": batch, "pixels": pixels, "channels": channels, "part": part, "parts": pixels // part}
    facts |= {"lanes": lanes, "chunks": channels // lanes}
    facts |= {"groups": int(attrs.num_groups), "members": channels // int(attrs.num_groups)}
    data, gamma, beta = call.args
    image = relax.op.reshape(data, (batch, pixels, channels)), (batch, pixels, channels)
    parts = batch, pixels // part, 2, channels
    sums = _call(builder, "norm_parts", _PARTS, facts, {"x": image}, parts)
    numbers = facts | {"epsilon": repr(float(attrs.epsilon)), "share": repr(1 / pixels)}
    numbers["member"] = repr(1 / facts["members"])
    given = {"x": image, "s": (sums, parts), "gamma": (gamma, (channels,)), "beta": (beta, (channels,))}
    scales = _call(builder, "norm_scales", _SCALES, numbers, given, (batch, 2, channels))
    applied = builder.add_func(_applied(sizes), "norm_apply")
    return relax.call_tir(applied, [data, scales], call.ty)


def _spelled(call: Any) -> Any:
    """What the importer makes of a norm, for images that stay channels-first."""
    (data, gamma, beta), sizes, groups = call.args, graph_rewriting.sizes_of(call), int(call.attrs.num_groups)
    rows = relax.op.reshape(data, (sizes[0], groups, prod(sizes[1:]) // groups))
    epsilon = relax.const(float(call.attrs.epsilon), "float32")
    deviation = relax.op.sqrt(relax.op.add(relax.op.variance(rows, [2], True), epsilon))
    normed = relax.op.divide(relax.op.subtract(rows, relax.op.mean(rows, [2], True)), deviation)
    gain, offset = (relax.op.reshape(value, (1, -1, *[1] * len(sizes[2:]))) for value in (gamma, beta))
    return relax.op.add(relax.op.multiply(relax.op.reshape(normed, sizes), gain), offset)


def _call(
    builder: Any, name: str, body: str, facts: dict[str, Any], given: dict[str, Any], result: tuple[int, ...]
) -> Any:
    """The call of a tensor function with one block for each of the first axes of its result."""
    shapes = {**{key: shape for key, (_, shape) in given.items()}, "y": result}
    over = ["n", "p"][: len(result) - 2]
    buffers = ", ".join(f'{key}: T.Buffer({shape}, "float32")' for key, shape in shapes.items())
    axes, loops = ", ".join(f"v{loop}" for loop in over), ", ".join(over)
    text = body.format(**facts)
    function = graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({buffers}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {loops}, once in T.grid({", ".join(map(str, result[: len(over)]))}, 1):
        with T.sblock("part"):
            {axes}, v_once = T.axis.remap("{"S" * (len(over) + 1)}", [{loops}, once])
            T.reads({", ".join(_region(key, shape, 1) for key, shape in shapes.items() if key != "y")})
            T.writes({_region("y", result, len(over))})
{indent(text, " " * 12)}
""")
    return relax.call_tir(
        builder.add_func(function, name),
        [value for value, _ in given.values()],
        relax.TensorType(result, "float32"),
    )


def _region(name: str, shape: tuple[int, ...], own: int) -> str:
    """All of a buffer, but for the first axes, which the blocks share."""
    places = [f"0:{size}" for size in shape]
    if len(shape) > 1:
        places[:own] = ["vn", "vp"][:own]
    return f"{name}[{', '.join(places)}]"


def _applied(sizes: tuple[int, ...]) -> Any:
    loops = [f"a{axis}" for axis in range(len(sizes))]
    values, text = ", ".join(f"v{loop}" for loop in loops), ", ".join(loops)
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({graph_rewriting.numbers(sizes)}), "float32"),
    s: T.Buffer(({graph_rewriting.numbers((sizes[0], 2, sizes[-1]))}), "float32"),
    y: T.Buffer(({graph_rewriting.numbers(sizes)}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for {text} in T.grid({graph_rewriting.numbers(sizes)}):
        with T.sblock("applied"):
            {values} = T.axis.remap("{"S" * len(sizes)}", [{text}])
            y[{values}] = x[{values}] * s[va0, 0, va{len(sizes) - 1}] + s[va0, 1, va{len(sizes) - 1}]
""")
