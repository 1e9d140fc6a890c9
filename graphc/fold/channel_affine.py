"""Scale and shift per channel, as computed by batch norms with constant statistics."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, operator_name
from mallorn.graphc.core.graph_rewriting import sizes_of

OPERATORS = ("relax.add", "relax.subtract", "relax.multiply", "relax.divide")


@dataclass(frozen=True)
class AffineLink:
    """An arithmetic operator with a constant operand: a scalar, or a value per channel."""

    name: str
    value: Any
    operand: Any  # the constant in float64, with all axes
    is_second: bool  # whether the computed value is the second argument


@dataclass(frozen=True)
class ChannelAffine:
    """The function x * scale + shift; both are float64 arrays along one axis at most."""

    scale: Any
    shift: Any

    def is_scaled(self) -> bool:
        return bool(np.any(self.scale != 1))

    def is_shifted(self) -> bool:
        return bool(np.any(self.shift != 0))

    def varying_axes(self) -> tuple[int, ...]:
        sizes = np.broadcast_shapes(self.scale.shape, self.shift.shape)
        return tuple(axis for axis, size in enumerate(sizes) if size > 1)

    def then(self, link: AffineLink) -> "ChannelAffine":
        """Return a function that applies this function, then the operator `link`."""
        operand = link.operand
        if link.name == "add":
            return ChannelAffine(self.scale, self.shift + operand)
        if link.name == "subtract":
            sign = -1 if link.is_second else 1
            return ChannelAffine(self.scale * sign, (self.shift - operand) * sign)
        factor = operand if link.name == "multiply" else 1 / operand
        return ChannelAffine(self.scale * factor, self.shift * factor)


def identity(ndim: int) -> ChannelAffine:
    """Return the identity: scale 1 and shift 0."""
    return ChannelAffine(np.ones((1,) * ndim), np.zeros((1,) * ndim))


def affine_link(call: Any, g: Graph) -> AffineLink | None:
    """Return the call as an AffineLink, or None if it has another operator or operands."""
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
    """Return what the chain of `AffineLink`s that ends in `call` computes, and the chain.

    A link is an operator with a constant operand. Only the next link reads its result. All
    constants vary along the same axis.
    """
    links: list[AffineLink] = []
    link = affine_link(call, g)
    while link is not None:
        sizes = np.broadcast_shapes(link.operand.shape, *(other_link.operand.shape for other_link in links))
        if sum(size > 1 for size in sizes) > 1:
            break
        links.insert(0, link)
        link = affine_link(g.producer(link.value), g) if g.has_one_reader(link.value) else None
    is_tuple = isinstance(call.ty, relax.TupleType)  # as the result of a split
    affine = identity(0 if is_tuple else call.ty.ndim)
    for link in links:
        affine = affine.then(link)
    return affine, links
