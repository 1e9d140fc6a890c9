"""A concatenation along the last axis with the constants and limits that follow it, as a graph has them."""

from dataclasses import dataclass
from typing import Any

from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_rewriting import known
from graphc.fold.channel_affine import ChannelAffine, affine_chain, nothing

CONCAT = "relax.concat"
# What may follow, besides factors and summands.
LIMITS = {"relax.nn.relu": "max", "relax.maximum": "max", "relax.minimum": "min"}
MOST_PARTS = 64  # arguments of a function


@dataclass(frozen=True)
class FollowedConcat:
    """A concatenation, and what a chain of calls computes of its result."""

    concat: Any
    affine: ChannelAffine
    limits: tuple[str, ...] = ()


def followed_concat(call: Any, g: Graph) -> FollowedConcat | None:
    """What ends in a call; none if no such concatenation is before it, or others read what is in between."""
    limits: list[str] = []
    while (limit := _limit(call, g)) is not None:
        limits.insert(0, limit)
        value = call.args[0]
        if joins_rows(g.producer(value)):
            return FollowedConcat(g.producer(value), nothing(value.ty.ndim), tuple(limits))
        call = g.producer(value) if g.read_once(value) else None
    if call is not None and joins_rows(call):
        return FollowedConcat(call, nothing(call.ty.ndim))
    affine, links = affine_chain(call, g) if call is not None else (nothing(1), [])
    concat: Any = g.producer(links[0].value) if links else None
    if not joins_rows(concat) or not set(affine.channels()) <= {concat.ty.ndim - 1}:
        return None
    return FollowedConcat(concat, affine, tuple(limits))


def joins_rows(call: Any) -> bool:
    """True for concatenations of float32 tensors of known sizes along the last axis."""
    if call is None or operator_name(call) != CONCAT or call.ty.dtype != "float32" or not known(call):
        return False
    return bool(call.ty.ndim > 1 and int(call.attrs.axis) % call.ty.ndim == call.ty.ndim - 1)


def parts_of(concat: Any, g: Graph) -> list[Any]:
    """What it joins, and of other such concatenations what they join, while a function can take so many."""
    parts = list(g.tuple_fields(concat.args[0]))
    for part in list(parts):
        inner = g.producer(part, CONCAT)
        if joins_rows(inner):
            more, at = parts_of(inner, g), parts.index(part)
            if len(parts) + len(more) - 1 <= MOST_PARTS:
                parts[at : at + 1] = more
    return parts


def readers_of_result(value: Any, g: Graph) -> list[Any]:
    """What reads the result of such a call and does not compute it on the way; None for what is no call."""
    readers = g.readers(value) if isinstance(value, relax.DataflowVar) else [*g.readers(value), None]
    return [
        reader
        for reader in readers
        if (
            any(part.same_as(value) for part in parts_of(reader, g))
            if joins_rows(reader)
            else reader is None or followed_concat(reader, g) is None
        )
    ]


def _limit(call: Any, g: Graph) -> str | None:
    """The limit that a call sets, as text."""
    kind = LIMITS.get(operator_name(call)) if call is not None else None
    if kind is None or len(call.args) == 1:
        return kind and f"T.{kind}({{}}, T.float32(0))"
    number = call.args[1]
    if not g.is_constant(number) or g.array(number).size != 1:
        return None
    return f"T.{kind}({{}}, T.float32({float(g.array(number).item())!r}))"
