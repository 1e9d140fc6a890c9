"""Group and instance norms of channels-last images: sums beside each other for all channels, in parts."""

from math import prod
from typing import Any

from tvm import relax

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import largest_factor, sizes_of
from graphc.core.reporting_pass import Leave
from graphc.norm.partial_sums_functions import NormedImage, apply_function, scales_function, sums_function

PART = 64  # pixels at most that are summed up by one core at a time


class GroupNormToPartialSums(Pass[NormedImage | None]):
    """Sums up images of group norms in parts if channels are last; spells the norm out if they stay first."""

    name, match = "norm.group_norm_to_partial_sums", ("relax.nn.group_norm",)
    after = ("norm.find_groups",)

    def check(self, call: Any, g: Graph) -> NormedImage | None:
        """The image; None for one that stays channels-first."""
        attrs, last = call.attrs, call.ty.ndim - 1
        if not attrs.center or not attrs.scale:
            raise Leave("it has no gains, or no offsets")
        channel = int(attrs.channel_axis) % call.ty.ndim
        axes = sorted(int(axis) % call.ty.ndim for axis in attrs.axes)
        if channel == 1 and axes == list(range(2, last + 1)):
            return None
        if channel != last or axes != list(range(1, last)):
            raise Leave("it norms other axes than places of an image")
        if int(call.ty.shape[last]) % g.lanes:
            raise Leave("its channels fill no vectors")
        return _image(call, g.lanes)

    def rewrite(self, call: Any, facts: NormedImage | None, g: Graph) -> Any:
        return _spelled(call) if facts is None else _in_parts(call, facts, g)


def _image(call: Any, lanes: int) -> NormedImage:
    sizes, groups = sizes_of(call), int(call.attrs.num_groups)
    pixels, channels = prod(sizes[1:-1]), sizes[-1]
    part = largest_factor(pixels, PART)
    return NormedImage(
        sizes=sizes,
        pixels=pixels,
        channels=channels,
        part=part,
        parts=pixels // part,
        lanes=lanes,
        chunks=channels // lanes,
        groups=groups,
        members=channels // groups,
        epsilon=float(call.attrs.epsilon),
    )


def _in_parts(call: Any, image: NormedImage, g: Graph) -> Any:
    data, gamma, beta = call.args
    rows = image.sizes[0], image.pixels, image.channels
    sums, scales = (rows[0], image.parts, 2, rows[2]), (rows[0], 2, rows[2])
    flat = relax.op.reshape(data, rows)
    summed = g.call_function("norm_parts", sums_function(image, rows, sums), [flat], _tensor(sums))
    function = scales_function(image, rows, sums, scales)
    scaling = g.call_function("norm_scales", function, [flat, summed, gamma, beta], _tensor(scales))
    return g.call_function("norm_apply", apply_function(image.sizes), [data, scaling], call.ty)


def _tensor(shape: tuple[int, ...]) -> Any:
    return relax.TensorType(shape, "float32")


def _spelled(call: Any) -> Any:
    """What the importer makes of a norm, for images that stay channels-first."""
    (data, gamma, beta), sizes, groups = call.args, sizes_of(call), int(call.attrs.num_groups)
    rows = relax.op.reshape(data, (sizes[0], groups, prod(sizes[1:]) // groups))
    epsilon = relax.const(float(call.attrs.epsilon), "float32")
    deviation = relax.op.sqrt(relax.op.add(relax.op.variance(rows, [2], True), epsilon))
    normed = relax.op.divide(relax.op.subtract(rows, relax.op.mean(rows, [2], True)), deviation)
    gain, offset = (relax.op.reshape(value, (1, -1, *[1] * len(sizes[2:]))) for value in (gamma, beta))
    return relax.op.add(relax.op.multiply(relax.op.reshape(normed, sizes), gain), offset)
