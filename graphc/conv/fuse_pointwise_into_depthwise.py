"""Compute a pointwise convolution and the depthwise one after it in one tensor function.

Depthwise convolutions are limited by memory bandwidth, and the tensor between the two is
the largest in such networks. So the function computes that tensor strip by strip, and each
strip stays in the caches until it is read. The schedule rule `schedule_strips` loops over
strips of rows and groups of channels; `int8_depthwise_conv` uses it as well.
"""

from dataclasses import dataclass
from typing import Any

import tvm

from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import (
    LANES,
    SUGGESTS,
    extent_of,
    inline_all_but,
    largest_factor,
    numbers,
    sizes_of,
    split_in_two,
)

WIDTH = "mallorn.lanes"  # annotation: float32 numbers in a vector, if fewer than LANES
STRIPS = "mallorn_strips"  # the schedule rule of the fused pair

NO_POINTWISE = "no pointwise convolution computes the input for this operator only"

# Operators allowed between the two convolutions, as TVMScript.
_BETWEEN = {
    "relax.add": "({} + {})",
    "relax.multiply": "({} * {})",
    "relax.maximum": "T.max({}, {})",
    "relax.minimum": "T.min({}, {})",
    "relax.nn.relu": "T.max({}, T.float32(0))",
}


@dataclass(frozen=True)
class Pair:
    """A pointwise and a depthwise convolution, and the element-wise calls between them."""

    pointwise: Any
    links: tuple[Any, ...]  # operators between the two
    depthwise: Any

    @property
    def arguments(self) -> list[Any]:
        """Data, pointwise weights, constants of the calls in between, depthwise weights."""
        vectors = [second for call in self.links for second in call.args[1:] if second.ty.ndim]
        return [*self.pointwise.args, *vectors, self.depthwise.args[1]]


class FusePointwiseIntoDepthwise(Pass[Pair]):
    """Computes a pointwise convolution and the depthwise one after it in one function."""

    name, match = "fuse_pointwise_into_depthwise", ("relax.nn.conv2d",)
    rules = (STRIPS,)

    def check(self, call: Any, g: Graph) -> Pair:
        channels, attrs = sizes_of(call)[-1], call.attrs
        if not int(attrs.groups) == channels == sizes_of(call.args[0])[-1]:
            raise Leave("the convolution is not depthwise")
        if any(int(number) != 1 for number in attrs.dilation) or not graph_rewriting.is_channels_last(call):
            raise Leave("there is dilation, channels are not last, or weights are computed")
        if channels % g.lanes:
            raise Leave(f"the channels do not fill vectors of {g.lanes}")
        chain = g.chain(call.args[0], _BETWEEN)
        source = chain.source
        is_convolution = source is not None and operator_name(source) == "relax.nn.conv2d"
        if source is None or not is_convolution or not graph_rewriting.is_channels_last(source):
            raise Leave(NO_POINTWISE)
        unit_attributes = (*source.attrs.strides, *source.attrs.dilation, source.attrs.groups)
        unit_sizes = (*unit_attributes, *sizes_of(source.args[1])[:2])
        if any(int(size) != 1 for size in unit_sizes) or any(map(int, source.attrs.padding)):
            raise Leave(NO_POINTWISE)
        if not all(
            isinstance(operand, tvm.ir.GenericConst)
            and (operand.ty.ndim == 0 or sizes_of(operand) == (1, 1, 1, channels))
            for link in chain.calls
            for operand in link.args[1:]
        ):
            raise Leave("an operand in between varies other than by channel")
        return Pair(chain.source, chain.calls, call)

    def rewrite(self, call: Any, facts: Pair, g: Graph) -> Any:
        return g.call_function("strips", _function(facts, g.lanes), facts.arguments, call.ty)


def format_strip_attributes(lanes: int) -> str:
    """Return TVMScript block attributes that select the schedule rule `schedule_strips`."""
    return f'"schedule_rule": "{STRIPS}"' + (
        f', "{WIDTH}": {lanes}' if lanes != graph_rewriting.LANES else ""
    )


def _function(pair: Pair, lanes: int) -> Any:
    names = ["x", "w", *(f"b{number}" for number in range(len(pair.arguments) - 3)), "d"]
    buffers = "\n".join(
        f'    {name}: T.Buffer(({numbers(sizes_of(value))}), "float32"),'
        for name, value in zip([*names, "y"], [*pair.arguments, pair.depthwise], strict=True)
    )
    batch, height, width, inputs = sizes_of(pair.pointwise.args[0])
    channels = sizes_of(pair.depthwise)[-1]
    top, left, bottom, right = map(int, pair.depthwise.attrs.padding)
    high, wide = sizes_of(pair.depthwise.args[1])[:2]
    down, across = map(int, pair.depthwise.attrs.strides)
    expanded_sizes = batch, height, width, channels
    padded_sizes = batch, height + top + bottom, width + left + right, channels
    is_inside = f"{top} <= vi and vi < {top + height} and {left} <= vj and vj < {left + width}"
    value, vectors = f"e[vn, vi - {top}, vj - {left}, vc]", 0
    for call in pair.links:
        operands = []
        for operand in call.args[1:]:
            if operand.ty.ndim:
                operands.append(f"b{vectors}[0, 0, 0, vc]")
                vectors += 1
            else:
                operands.append(f"T.float32({float(operand.value.numpy())!r})")
        value = _BETWEEN[call.op.name].format(value, *operands)
    return graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
{buffers}
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    e = T.sblock_alloc_buffer(({numbers(expanded_sizes)}), "float32")
    p = T.sblock_alloc_buffer(({numbers(padded_sizes)}), "float32")
    for n, i, j, c, k in T.grid({numbers((*expanded_sizes, inputs))}):
        with T.sblock("pointwise"):
            vn, vi, vj, vc, vk = T.axis.remap("SSSSR", [n, i, j, c, k])
            with T.init():
                e[vn, vi, vj, vc] = T.float32(0)
            e[vn, vi, vj, vc] = e[vn, vi, vj, vc] + x[vn, vi, vj, vk] * w[0, 0, vk, vc]
    for n, i, j, c in T.grid({numbers(padded_sizes)}):
        with T.sblock("padded"):
            vn, vi, vj, vc = T.axis.remap("SSSS", [n, i, j, c])
            p[vn, vi, vj, vc] = T.if_then_else({is_inside}, {value}, T.float32(0))
    for n, i, j, c, r, s in T.grid({numbers((*sizes_of(pair.depthwise), high, wide))}):
        with T.sblock("depthwise"):
            vn, vi, vj, vc, vr, vs = T.axis.remap("SSSSRR", [n, i, j, c, r, s])
            T.sblock_attr({{{format_strip_attributes(lanes)}}})
            with T.init():
                y[vn, vi, vj, vc] = T.float32(0)
            y[vn, vi, vj, vc] = (
                y[vn, vi, vj, vc] + p[vn, vi * {down} + vr, vj * {across} + vs, vc] * d[vr, vs, 0, vc]
            )
""")


# For each pair: the limit of what a search may try, and the choice made without a search.
MAX_ROWS, CACHE_BYTES = 64, 1 << 18  # rows of a strip, and bytes of it to keep in a cache
MAX_ROW, ROW = 16, 8  # results of a row that are summed together in registers
MAX_VECTORS, VECTORS = 8, 2  # vectors of channels that are summed with them
MAX_INPUTS, INPUTS = 64, 8  # inputs of a pointwise sum that are unrolled


def schedule_strips(schedule: Any, block: Any) -> list[Any]:
    """Schedule all blocks in loops over strips of rows and groups of channel vectors."""
    (padding,) = schedule.get_producers(block)
    pointwise = schedule.get_producers(padding)
    schedule = inline_all_but(schedule, [*pointwise, padding, block])
    groups, tile = _tile_window(schedule, block, padding)
    schedule.compute_at(padding, groups, preserve_unit_loops=True)
    *_, rows, _, channels = schedule.get_loops(padding)
    schedule.split(channels, tile)
    for sums in pointwise:
        schedule.compute_at(sums, rows, preserve_unit_loops=True)
        *_, row, channels, inputs = schedule.get_loops(sums)
        parts, row = split_in_two(schedule, row, MAX_ROW, ROW)
        tiles, vectors, lanes = schedule.split(channels, tile)
        steps, inputs = split_in_two(schedule, inputs, MAX_INPUTS, INPUTS)
        schedule.reorder(parts, tiles, steps, inputs, row, vectors, lanes)
    schedule.annotate(block, SUGGESTS, 1)
    return [schedule]


def _tile_window(schedule: Any, block: Any, padding: Any) -> tuple[Any, list[Any]]:
    """Tile the depthwise block and its consumer; return the channel-group loop and tile."""
    followers = schedule.get_consumers(block)
    last = followers[0] if followers else block
    batch, rows, row, channels, *window = schedule.get_loops(last)
    width = int(schedule.get(block).annotations.get(WIDTH, LANES))
    channels, lanes = schedule.split(channels, [extent_of(schedule, channels) // width, width])
    # Groups, tiles per group, vectors per tile.
    count = extent_of(schedule, channels)
    inner = largest_factor(count, VECTORS)
    tile_count = largest_factor(count // inner, 2)
    default_factors = [count // inner // tile_count, tile_count, inner]
    factors = schedule.sample_perfect_tile(channels, 3, MAX_VECTORS, default_factors)
    groups, tiles, vectors = schedule.split(channels, factors)
    _, high, wide, _ = schedule.get_loops(padding)
    channel_bytes = 4 * extent_of(schedule, high) * extent_of(schedule, wide)
    strip_bytes = channel_bytes * default_factors[1] * default_factors[2] * width
    fitting = CACHE_BYTES * extent_of(schedule, rows) // strip_bytes
    strips, rows = split_in_two(schedule, rows, MAX_ROWS, fitting)
    parts, row = split_in_two(schedule, row, MAX_ROW, ROW)
    schedule.reorder(batch, strips, groups, rows, parts, tiles, vectors, *window, row, lanes)
    if followers:
        schedule.compute_at(block, vectors, preserve_unit_loops=True)
        *_, row, lanes, high, wide = schedule.get_loops(block)
        schedule.reorder(high, wide, row, lanes)
    return groups, [*factors[1:], width]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{STRIPS}", schedule_strips, override=True)
