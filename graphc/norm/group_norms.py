"""Compute group and instance norms of images, from partial sums per channel where these are last.

TVM's importer writes these norms as mean, variance and reshapes to groups. After a layout
change, transposes around the reshapes would hide the norms from later passes: one operator
replaces them before layouts change.
"""

from dataclasses import dataclass
from math import prod
from textwrap import indent
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import OPAQUE, largest_factor, numbers, parse_tvmscript, sizes_of

RESHAPE = "relax.reshape"
NO_NORM = "the division is not by the standard deviation of the data minus their mean"
Shape = tuple[int, ...]
# Sums of squares of differences from the first pixel lose no digits to a large mean.
_PARTS = """
for k in range({n.chunks}):
    for i in T.vectorized({n.lanes}):
        y[vn, vp, 0, k * {n.lanes} + i] = T.float32(0)
        y[vn, vp, 1, k * {n.lanes} + i] = T.float32(0)
for r in range({n.part}):
    for k in range({n.chunks}):
        for i in T.vectorized({n.lanes}):
            d: T.let = x[vn, vp * {n.part} + r, k * {n.lanes} + i] - x[vn, 0, k * {n.lanes} + i]
            y[vn, vp, 0, k * {n.lanes} + i] = y[vn, vp, 0, k * {n.lanes} + i] + d
            y[vn, vp, 1, k * {n.lanes} + i] = y[vn, vp, 1, k * {n.lanes} + i] + d * d
"""
_SCALES = """
mean = T.sblock_alloc_buffer(({n.channels},), "float32")
square = T.sblock_alloc_buffer(({n.channels},), "float32")
middle = T.sblock_alloc_buffer((1,), "float32")
factor = T.sblock_alloc_buffer((1,), "float32")
for k in range({n.chunks}):
    for i in T.vectorized({n.lanes}):
        mean[k * {n.lanes} + i] = T.float32(0)
        square[k * {n.lanes} + i] = T.float32(0)
for p in range({n.parts}):
    for k in range({n.chunks}):
        for i in T.vectorized({n.lanes}):
            mean[k * {n.lanes} + i] = mean[k * {n.lanes} + i] + s[vn, p, 0, k * {n.lanes} + i]
            square[k * {n.lanes} + i] = square[k * {n.lanes} + i] + s[vn, p, 1, k * {n.lanes} + i]
for k in range({n.chunks}):
    for i in T.vectorized({n.lanes}):
        m: T.let = mean[k * {n.lanes} + i] * T.float32(1 / {n.pixels})
        square[k * {n.lanes} + i] = T.max(
            square[k * {n.lanes} + i] - m * mean[k * {n.lanes} + i], T.float32(0)
        )
        mean[k * {n.lanes} + i] = m + x[vn, 0, k * {n.lanes} + i]
for g in range({n.groups}):
    middle[0] = T.float32(0)
    factor[0] = T.float32(0)
    for c in range({n.members}):
        middle[0] = middle[0] + mean[g * {n.members} + c]
    middle[0] = middle[0] * T.float32(1 / {n.members})
    for c in range({n.members}):
        e: T.let = mean[g * {n.members} + c] - middle[0]
        factor[0] = factor[0] + square[g * {n.members} + c] + T.float32({n.pixels}) * e * e
    factor[0] = T.float32(1) / T.sqrt(
        factor[0] * T.float32(1 / {n.pixels} * (1 / {n.members})) + T.float32({n.epsilon})
    )
    for c in range({n.members}):
        a: T.let = gamma[g * {n.members} + c] * factor[0]
        y[vn, 0, g * {n.members} + c] = a
        y[vn, 1, g * {n.members} + c] = beta[g * {n.members} + c] - middle[0] * a
"""


@dataclass(frozen=True)
class GroupNorm:
    """A norm's input, number of groups and epsilon; other operators scale and shift it."""

    data: Any
    groups: int
    epsilon: float


class FindGroupNorms(Pass[GroupNorm]):
    """Replaces group norms written as several operators by one, if channels fill vectors."""

    name, match = "find_group_norms", (RESHAPE, "relax.divide")
    forward = True  # skip a norm's reshaped data, which looks like another norm's

    def check(self, call: Any, g: Graph) -> GroupNorm:
        if call.ty.ndim <= 2 or int(call.ty.shape[1]) % g.lanes:
            raise Leave("the result is not an image whose channels fill vectors")
        if operator_name(call) == RESHAPE:
            value = call.args[0]  # skip multiplications by 1 and additions of 0
            for operator, unit in (("relax.add", 0), ("relax.multiply", 1)):
                neutral = g.producer(value, operator)
                if neutral is not None and g.is_constant(neutral.args[1]):
                    if np.any(g.array(neutral.args[1]) != unit):
                        raise Leave("the norm was scaled or shifted before the reshape")
                    value = neutral.args[0]
            normed = _normed(g, g.producer(value, "relax.divide"))
            source = g.producer(normed.data, RESHAPE)
            if source is None:
                raise Leave("no reshape computes the input of the norm")
            rows, sizes = sizes_of(source), sizes_of(call)
            is_grouped = sizes_of(source.args[0]) == sizes and len(rows) == 3 and rows[0] == sizes[0]
            if not is_grouped or sizes[1] % rows[1]:
                raise Leave("the rows of the norm are not groups of channels")
            return GroupNorm(source.args[0], rows[1], normed.epsilon)
        normed = _normed(g, call)
        if g.producer(normed.data, RESHAPE) is not None:
            raise Leave("the data of the norm was reshaped before")
        return normed

    def rewrite(self, call: Any, facts: GroupNorm, g: Graph) -> Any:
        channels, axes = int(call.ty.shape[1]), list(range(2, call.ty.ndim))
        gain, offset = (relax.const(np.full(channels, value, "float32")) for value in (1, 0))
        return relax.op.nn.group_norm(facts.data, gain, offset, facts.groups, 1, axes, facts.epsilon)


def _normed(g: Graph, quotient: Any | None) -> GroupNorm:
    """Return the norm that ends in this division, one group per channel. Raises Leave."""
    if quotient is None:
        raise Leave(NO_NORM)
    difference = g.producer(quotient.args[0], "relax.subtract")
    root = g.producer(quotient.args[1], "relax.sqrt")
    total = None if root is None else g.producer(root.args[0], "relax.add")
    if difference is None or total is None or not g.is_constant(total.args[1]):
        raise Leave(NO_NORM)
    data, epsilon = difference.args[0], g.array(total.args[1])
    mean = g.producer(difference.args[1], "relax.mean")
    variance = g.producer(total.args[0], "relax.variance")
    if epsilon.ndim:
        raise Leave(NO_NORM)
    for reduction in (mean, variance):  # both over all but the first two axes, which stay
        if reduction is None or not reduction.args[0].same_as(data) or not reduction.attrs.keepdims:
            raise Leave(NO_NORM)
        axes = [int(axis) % data.ty.ndim for axis in reduction.attrs.axis or ()]
        if axes != list(range(2, data.ty.ndim)):
            raise Leave(NO_NORM)
    return GroupNorm(data, int(quotient.ty.shape[1]), epsilon.item())


@dataclass(frozen=True)
class NormedImage:
    """A channels-last image to norm, divided into parts of some pixels and into vectors."""

    sizes: Shape
    pixels: int
    channels: int
    part: int  # pixels per part
    parts: int
    lanes: int
    chunks: int  # vectors per pixel
    groups: int
    members: int  # channels per group
    epsilon: float


def sums_function(image: NormedImage, rows: Shape, sums: Shape) -> Any:
    """Build the function that computes two sums per channel in each part of the image.

    The terms are the pixels' differences from the first pixel, and the differences' squares.
    """
    return _function(_PARTS.format(n=image), {"x": rows}, sums)


def scales_function(image: NormedImage, rows: Shape, sums: Shape, scales: Shape) -> Any:
    """Build the function that computes scale and shift per channel from the parts' sums."""
    channels = (image.channels,)
    inputs = {"x": rows, "s": sums, "gamma": channels, "beta": channels}
    return _function(_SCALES.format(n=image), inputs, scales)


def _function(body: str, inputs: dict[str, Shape], result: Shape) -> Any:
    """Build a function from `body`: one block per image or, for sums, per part of it."""
    shapes = {**inputs, "y": result}
    leading_loops = ["n", "p"][: len(result) - 2]
    buffers = ", ".join(f'{key}: T.Buffer({shape}, "float32")' for key, shape in shapes.items())
    axes, loops = ", ".join(f"v{loop}" for loop in leading_loops), ", ".join(leading_loops)
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main({buffers}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for {loops}, once in T.grid({", ".join(map(str, result[: len(leading_loops)]))}, 1):
        with T.sblock("part"):
            {axes}, v_once = T.axis.remap("{"S" * (len(leading_loops) + 1)}", [{loops}, once])
            T.reads({", ".join(_region(key, shape, 1) for key, shape in inputs.items())})
            T.writes({_region("y", result, len(leading_loops))})
{indent(body, " " * 12)}
""")


def _region(name: str, shape: Shape, own: int) -> str:
    places = [f"0:{size}" for size in shape]
    if len(shape) > 1:
        places[:own] = ["vn", "vp"][:own]
    return f"{name}[{', '.join(places)}]"


def build_apply_function(sizes: Shape) -> Any:
    """Build the function that applies scale and shift; TVM can fuse operators after it."""
    loops = [f"a{axis}" for axis in range(len(sizes))]
    values, text = ", ".join(f"v{loop}" for loop in loops), ", ".join(loops)
    return parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({numbers(sizes)}), "float32"),
    s: T.Buffer(({numbers((sizes[0], 2, sizes[-1]))}), "float32"),
    y: T.Buffer(({numbers(sizes)}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for {text} in T.grid({numbers(sizes)}):
        with T.sblock("applied"):
            {values} = T.axis.remap("{"S" * len(sizes)}", [{text}])
            y[{values}] = x[{values}] * s[va0, 0, va{len(sizes) - 1}] + s[va0, 1, va{len(sizes) - 1}]
""")


PART = 64  # most pixels in a part, which one core sums up


class GroupNormToPartialSums(Pass[NormedImage | None]):
    """Computes channels-last group norms from partial sums, others by separate operators."""

    name, match = "group_norm_to_partial_sums", ("relax.nn.group_norm",)
    after = ("find_group_norms",)

    def check(self, call: Any, g: Graph) -> NormedImage | None:
        """Return the image, or None for a channels-first one, normed by plain operators."""
        attrs, last = call.attrs, call.ty.ndim - 1
        if not attrs.center or not attrs.scale:
            raise Leave("the norm has no gains, or no offsets")
        channel = int(attrs.channel_axis) % call.ty.ndim
        axes = sorted(int(axis) % call.ty.ndim for axis in attrs.axes)
        if channel == 1 and axes == list(range(2, last + 1)):
            return None
        if channel != last or axes != list(range(1, last)):
            raise Leave("the norm is over other axes than an image's height and width")
        if int(call.ty.shape[last]) % g.lanes:
            raise Leave("the channels do not fill vectors of")
        sizes, groups = sizes_of(call), int(call.attrs.num_groups)
        pixels, channels = prod(sizes[1:-1]), sizes[-1]
        part = largest_factor(pixels, PART)
        return NormedImage(
            sizes=sizes,
            pixels=pixels,
            channels=channels,
            part=part,
            parts=pixels // part,
            lanes=g.lanes,
            chunks=channels // g.lanes,
            groups=groups,
            members=channels // groups,
            epsilon=float(call.attrs.epsilon),
        )

    def rewrite(self, call: Any, facts: NormedImage | None, g: Graph) -> Any:
        data, gamma, beta = call.args
        if facts is not None:
            rows = facts.sizes[0], facts.pixels, facts.channels
            sums, scales = (rows[0], facts.parts, 2, rows[2]), (rows[0], 2, rows[2])
            flat = relax.op.reshape(data, rows)
            part_sums = g.call_function("norm_parts", sums_function(facts, rows, sums), [flat], _tensor(sums))
            function = scales_function(facts, rows, sums, scales)
            arguments = [flat, part_sums, gamma, beta]
            scaling = g.call_function("norm_scales", function, arguments, _tensor(scales))
            return g.call_function("norm_apply", build_apply_function(facts.sizes), [data, scaling], call.ty)

        # Write the norm as separate operators, as the importer does, for channels-first images.
        sizes, groups = sizes_of(call), int(call.attrs.num_groups)
        group_rows = relax.op.reshape(data, (sizes[0], groups, prod(sizes[1:]) // groups))
        epsilon = relax.const(float(call.attrs.epsilon), "float32")
        deviation = relax.op.sqrt(relax.op.add(relax.op.variance(group_rows, [2], True), epsilon))
        centred = relax.op.subtract(group_rows, relax.op.mean(group_rows, [2], True))
        normed = relax.op.divide(centred, deviation)
        gain, offset = (relax.op.reshape(value, (1, -1, *[1] * len(sizes[2:]))) for value in (gamma, beta))
        return relax.op.add(relax.op.multiply(relax.op.reshape(normed, sizes), gain), offset)


def _tensor(shape: tuple[int, ...]) -> Any:
    return relax.TensorType(shape, "float32")
