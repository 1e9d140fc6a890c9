"""A factor and a summand a channel: what a batch norm with constant statistics is, and chains of such."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_rewriting import sizes_of

OPERATORS = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")


@dataclass(frozen=True)
class AffineLink:
    """An operator of one computed value and a constant: a number, or one for each channel."""

    name: str
    value: Any
    operand: Any  # in float64, with all axes
    is_second: bool  # whether the computed value is the second argument


@dataclass(frozen=True)
class ChannelAffine:
    """What x * scale + shift computes: arrays of float64 with all axes, of which one at most is long."""

    scale: Any
    shift: Any

    def is_scaled(self) -> bool:
        return bool(np.any(self.scale != 1))

    def is_shifted(self) -> bool:
        return bool(np.any(self.shift != 0))

    def channels(self) -> tuple[int, ...]:
        """The axes along which it has other numbers."""
        sizes = np.broadcast_shapes(self.scale.shape, self.shift.shape)
        return tuple(axis for axis, size in enumerate(sizes) if size > 1)

    def then(self, link: AffineLink) -> "ChannelAffine":
        """What a call computes of the result of this."""
        operand = link.operand
        if link.name == "add":
            return ChannelAffine(self.scale, self.shift + operand)
        if link.name == "subtract":
            sign = -1 if link.is_second else 1
            return ChannelAffine(self.scale * sign, (self.shift - operand) * sign)
        factor = operand if link.name == "multiply" else 1 / operand
        return ChannelAffine(self.scale * factor, self.shift * factor)


def nothing(ndim: int) -> ChannelAffine:
    """What changes no number."""
    return ChannelAffine(np.ones((1,) * ndim), np.zeros((1,) * ndim))


def affine_link(call: Any, g: Graph) -> AffineLink | None:
    """The call as a link of a chain; none if it is another operator, or of other operands."""
    if call is None or operator_name(call) not in OPERATORS:
        return None
    name, is_second = operator_name(call).removeprefix("relax."), g.is_constant(call.args[0])
    constant, value = call.args if is_second else call.args[::-1]
    if not g.is_constant(constant) or g.is_constant(value) or sizes_of(value) != sizes_of(call):
        return None
    array = g.array(constant).astype("float64")
    if array.size != max((1, *array.shape)) or (name == "divide" and (is_second or not array.all())):
        return None
    return AffineLink(name, value, array.reshape((1,) * (call.ty.ndim - array.ndim) + array.shape), is_second)


def affine_chain(call: Any, g: Graph) -> tuple[ChannelAffine, list[AffineLink]]:
    """What links that end in a call compute together, the first one first.

    Each is read by the next alone, and all have their numbers along the same axis.
    """
    links: list[AffineLink] = []
    link = affine_link(call, g)
    while link is not None:
        sizes = np.broadcast_shapes(*(each.operand.shape for each in (link, *links)))
        if sum(size > 1 for size in sizes) > 1:
            break
        links.insert(0, link)
        link = affine_link(g.producer(link.value), g) if g.read_once(link.value) else None
    is_tuple = isinstance(call.ty, relax.TupleType)  # as of a split
    found = nothing(0 if is_tuple else call.ty.ndim)
    for each in links:
        found = found.then(each)
    return found, links
