"""Compute concatenations along the last axis as copies, fused with what follows.

TVM's own form selects the part for every number, which prevents vectors. Here each part has
its own loop in a row of the result. Parts of nested concatenations, as in dense blocks, are
read at their origin, so nothing is copied twice.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from graphc.core.graph_rewriting import OPERATOR, OUT_ELEMENTWISE_FUSABLE, known, numbers, parsed, sizes_of
from graphc.fold.channel_affine import OPERATORS, ChannelAffine, affine_chain, nothing
from graphc.tasks.keep_packed_weights import BY_PART
from graphc.tasks.mark_elementwise_rows import width

CONCAT = "relax.concat"
# Limits that may follow a concatenation, besides scales and shifts.
LIMITS = {"relax.nn.relu": "max", "relax.maximum": "max", "relax.minimum": "min"}
MOST_PARTS = 64  # most arguments of a function


@dataclass(frozen=True)
class FollowedConcat:
    """A concatenation, and the scale, shift and limits that calls apply to its result."""

    concat: Any
    affine: ChannelAffine
    limits: tuple[str, ...] = ()


def followed_concat(call: Any, g: Graph) -> FollowedConcat | None:
    """Return the chain from a concatenation to this call; None if others read in between."""
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
    """Return whether a call concatenates float32 tensors of known sizes along the last axis."""
    if call is None or operator_name(call) != CONCAT or call.ty.dtype != "float32" or not known(call):
        return False
    return bool(call.ty.ndim > 1 and int(call.attrs.axis) % call.ty.ndim == call.ty.ndim - 1)


def parts_of(concat: Any, g: Graph) -> list[Any]:
    """Return a concatenation's parts, nested ones flattened up to MOST_PARTS in all."""
    parts = list(g.tuple_fields(concat.args[0]))
    for part in list(parts):
        inner = g.producer(part, CONCAT)
        if joins_rows(inner):
            more, at = parts_of(inner, g), parts.index(part)
            if len(parts) + len(more) - 1 <= MOST_PARTS:
                parts[at : at + 1] = more
    return parts


def readers_of_result(value: Any, g: Graph) -> list[Any]:
    """Return readers that need the call's stored result; None for a reader that is no call."""
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
    """Return the limit that a call applies, as TVMScript; None if it applies none."""
    kind = LIMITS.get(operator_name(call)) if call is not None else None
    if kind is None or len(call.args) == 1:
        return kind and f"T.{kind}({{}}, T.float32(0))"
    number = call.args[1]
    if not g.is_constant(number) or g.array(number).size != 1:
        return None
    return f"T.{kind}({{}}, T.float32({float(g.array(number).item())!r}))"


REDUCTION = 3  # TVM's pattern kind: fused with producers, not with consumers


@dataclass(frozen=True)
class ConcatShape:
    """Everything that determines the generated function."""

    rows: tuple[int, ...]
    parts: tuple[int, ...]  # columns of each part
    is_scaled: bool
    is_shifted: bool
    limits: tuple[str, ...]  # TVMScript templates, in order
    lanes: int

    @property
    def row(self) -> int:
        return sum(self.parts)


def concat_function(shape: ConcatShape) -> Any:
    """Build the function of the parts, the row's scale and shift if any, and the result.

    The last loop runs once, so that MetaSchedule does not vectorise the rows.
    """
    axes = [f"v{axis}" for axis in range(len(shape.rows))]
    loops = [f"a{axis}" for axis in range(len(shape.rows))]
    vectors = [name for name, used in (("s", shape.is_scaled), ("t", shape.is_shifted)) if used]
    buffers = [
        *(_buffer(f"x{at}", (*shape.rows, part)) for at, part in enumerate(shape.parts)),
        *(_buffer(name, (shape.row,)) for name in vectors),
        _buffer("y", (*shape.rows, shape.row)),
    ]
    reads = [f"x{at}[{', '.join(axes)}, 0:{part}]" for at, part in enumerate(shape.parts)]
    reads += [f"{name}[0:{shape.row}]" for name in vectors]
    body = "\n".join(f"            {line}" for line in _copies(shape, ", ".join(axes)))
    return parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {REDUCTION}}})
    for {", ".join(loops)}, once in T.grid({numbers(shape.rows)}, T.int64(1)):
        with T.sblock("row"):
            {", ".join(axes)}, v_once = T.axis.remap("{"S" * (len(axes) + 1)}", [{", ".join(loops)}, once])
            T.sblock_attr({{"{OPERATOR}": "{BY_PART}"}})
            T.reads({", ".join(reads)})
            T.writes(y[{", ".join(axes)}, 0:{shape.row}])
{body}
""")


def _buffer(name: str, sizes: tuple[int, ...]) -> str:
    return f'{name}: T.Buffer(({numbers(sizes)},), "float32")'


def _copies(shape: ConcatShape, row: str) -> Iterator[str]:
    """Yield statements that copy each part in vectors, and its remainder number by number."""
    start = 0
    for at, part in enumerate(shape.parts):
        vector = width(part, shape.lanes) or shape.lanes
        if part >= vector:
            yield f"for k in range(T.int64({part // vector})):"
            yield f"    for c in T.vectorized(T.int64({vector})):"
            yield f"        {_copy(shape, row, at, start, f'k * T.int64({vector}) + c')}"
        if rest := part % vector:
            yield f"for c in range(T.int64({rest})):"
            yield f"    {_copy(shape, row, at, start, f'c + T.int64({part - rest})')}"
        start += part


def _copy(shape: ConcatShape, row: str, at: int, start: int, column: str) -> str:
    to = f"{column} + T.int64({start})"
    return f"y[{row}, {to}] = {_computed(shape, f'x{at}[{row}, {column}]', to)}"


def _computed(shape: ConcatShape, value: str, column: str) -> str:
    if shape.is_scaled:
        value = f"{value} * s[{column}]"
    if shape.is_shifted:
        value = f"{value} + t[{column}]"
    for limit in shape.limits:
        value = limit.format(value)
    return value


# Operators that TVM fuses with a concatenation and with the producers before it.
_FUSED = (*OPERATORS, *LIMITS)


@dataclass(frozen=True)
class Copies:
    """The tensors to copy, the scale and shift to apply, and the shape of the function."""

    parts: tuple[Any, ...]
    vectors: tuple[Any, ...]
    shape: ConcatShape


class ConcatToCopies(Pass[Copies]):
    """Concatenates along the last axis by copies, and applies constant operators that follow."""

    name, match = "layout.concat_to_copies", (CONCAT, *_FUSED)
    after = ("fold.batch_norm", "conv.keep_joined_groups_apart")

    def check(self, call: Any, g: Graph) -> Copies:
        chain = followed_concat(call, g)
        if chain is None:
            raise Leave("it does not join rows") if operator_name(call) == CONCAT else Leave
        readers = readers_of_result(g.variable, g)
        if not readers:
            raise Leave
        if any(reader is not None and operator_name(reader) in _FUSED for reader in readers):
            raise Leave("TVM computes it where what follows reads it")
        sources = [_source(part, g) for part in parts_of(chain.concat, g)]
        sizes = tuple(sizes_of(value)[-1] for value, _ in sources)
        if max(sizes) < self.lanes:
            raise Leave("no part of it fills a vector")
        affine = _joined([own for _, own in sources], sizes, chain.affine)
        used = affine.is_scaled(), affine.is_shifted()
        shape = ConcatShape(sizes_of(call)[:-1], sizes, *used, chain.limits, self.lanes)
        vectors = (affine.scale,) * used[0] + (affine.shift,) * used[1]
        return Copies(tuple(value for value, _ in sources), vectors, shape)

    def rewrite(self, call: Any, facts: Copies, g: Graph) -> Any:
        constants = (relax.const(vector.astype("float32")) for vector in facts.vectors)
        arguments = [*facts.parts, *constants]
        return g.call_function("concatenate", concat_function(facts.shape), arguments, call.ty)


def _source(part: Any, g: Graph) -> tuple[Any, ChannelAffine]:
    """Return a part's source and the scale and shift to apply while copying it.

    That is the part itself if TVM can fuse the scale and shift with the part's producer, or if
    other operators read the part.
    """
    producer, same = g.producer(part), nothing(part.ty.ndim)
    affine, links = affine_chain(producer, g) if producer is not None else (same, [])
    source = g.producer(links[0].value, "relax.call_tir") if links else None
    if source is None or not set(affine.channels()) <= {part.ty.ndim - 1}:
        return part, same
    pattern = (g.tensor_function(source).attrs or {}).get("op_pattern")
    is_for_concats = isinstance(part, relax.DataflowVar) and all(map(joins_rows, g.readers(part)))
    return (
        (part, same) if pattern == OUT_ELEMENTWISE_FUSABLE or not is_for_concats else (links[0].value, affine)
    )


def _joined(parts: Sequence[ChannelAffine], sizes: Sequence[int], after: ChannelAffine) -> ChannelAffine:
    """Concatenate the parts' scales and shifts per column, then apply the whole row's."""
    rows = [
        np.concatenate([np.resize(values, size) for values, size in zip(each, sizes, strict=True)])
        for each in ([part.scale for part in parts], [part.shift for part in parts])
    ]
    scale, shift = after.scale.reshape(-1), after.shift.reshape(-1)
    return ChannelAffine(rows[0] * scale, rows[1] * scale + shift)
