"""Compute concatenations along the last axis as copies, fused with later operators.

TVM's own function chooses the source tensor for every element, which prevents vector code.
Here each part of a row has its own copy loop. Nested concatenations, as in dense blocks,
are flattened, so that no element is copied twice.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import (
    OPERATOR,
    OUT_ELEMENTWISE_FUSABLE,
    has_known_sizes,
    numbers,
    parse_tvmscript,
    sizes_of,
)
from mallorn.graphc.fold.channel_affine import OPERATORS, ChannelAffine, affine_chain, identity
from mallorn.graphc.tasks.mark_tasks import BY_PART, choose_vector_width

CONCAT = "relax.concat"
# Limits that may follow a concatenation, besides scales and shifts.
LIMITS = {"relax.nn.relu": "max", "relax.maximum": "max", "relax.minimum": "min"}
MOST_PARTS = 64  # most arguments of a function


@dataclass(frozen=True)
class FollowedConcat:
    """A concatenation, and the scale, shift and bounds that later operators apply."""

    concat: Any
    affine: ChannelAffine
    limits: tuple[str, ...] = ()


def followed_concat(call: Any, g: Graph) -> FollowedConcat | None:
    """Return a concat and the scale, shift and bounds from it to `call`; None if not so."""
    limits: list[str] = []
    while call is not None and (kind := LIMITS.get(operator_name(call))) is not None:
        bound = "0"  # of a ReLU
        if len(call.args) > 1:
            number = call.args[1]
            if not g.is_constant(number) or g.array(number).size != 1:
                break
            bound = repr(float(g.array(number).item()))
        limits.insert(0, f"T.{kind}({{}}, T.float32({bound}))")
        value = call.args[0]
        if is_last_axis_concat(g.producer(value)):
            return FollowedConcat(g.producer(value), identity(value.ty.ndim), tuple(limits))
        call = g.producer(value) if g.has_one_reader(value) else None
    if call is not None and is_last_axis_concat(call):
        return FollowedConcat(call, identity(call.ty.ndim))
    affine, links = affine_chain(call, g) if call is not None else (identity(1), [])
    concat: Any = g.producer(links[0].value) if links else None
    if not is_last_axis_concat(concat) or not set(affine.varying_axes()) <= {concat.ty.ndim - 1}:
        return None
    return FollowedConcat(concat, affine, tuple(limits))


def is_last_axis_concat(call: Any) -> bool:
    """Return whether a call concatenates float32 tensors of known sizes along the last axis."""
    if (
        call is None
        or operator_name(call) != CONCAT
        or call.ty.dtype != "float32"
        or not has_known_sizes(call)
    ):
        return False
    return bool(call.ty.ndim > 1 and int(call.attrs.axis) % call.ty.ndim == call.ty.ndim - 1)


def parts_of(concat: Any, g: Graph) -> list[Any]:
    """Return the tensors to concatenate; nested concats are flattened up to MOST_PARTS."""
    parts = list(g.tuple_fields(concat.args[0]))
    for part in list(parts):
        inner = g.producer(part, CONCAT)
        if is_last_axis_concat(inner):
            inner_parts, index = parts_of(inner, g), parts.index(part)
            if len(parts) + len(inner_parts) - 1 <= MOST_PARTS:
                parts[index : index + 1] = inner_parts
    return parts


def readers_of_result(value: Any, g: Graph) -> list[Any]:
    """Return the calls that need the concatenation `value` in memory; None: not a call."""
    readers = g.readers(value) if isinstance(value, relax.DataflowVar) else [*g.readers(value), None]
    return [
        reader
        for reader in readers
        if (
            any(part.same_as(value) for part in parts_of(reader, g))
            if is_last_axis_concat(reader)
            else reader is None or followed_concat(reader, g) is None
        )
    ]


REDUCTION = 3  # TVM's pattern kind: fused with producers, not with consumers


@dataclass(frozen=True)
class ConcatShape:
    """Sizes and options from which `concat_function` generates code."""

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
    """Build the tensor function; it reads the parts and any scale and shift per column.

    A dummy last loop of one iteration keeps MetaSchedule from vectorising over the rows.
    """
    axes = [f"v{axis}" for axis in range(len(shape.rows))]
    loops = [f"a{axis}" for axis in range(len(shape.rows))]
    vectors = [name for name, is_used in (("s", shape.is_scaled), ("t", shape.is_shifted)) if is_used]
    buffers = [
        *(_buffer(f"x{index}", (*shape.rows, part)) for index, part in enumerate(shape.parts)),
        *(_buffer(name, (shape.row,)) for name in vectors),
        _buffer("y", (*shape.rows, shape.row)),
    ]
    reads = [f"x{index}[{', '.join(axes)}, 0:{part}]" for index, part in enumerate(shape.parts)]
    reads += [f"{name}[0:{shape.row}]" for name in vectors]
    lines, start = [], 0
    for index, part in enumerate(shape.parts):  # whole vectors, then the remainder number by number
        vector = choose_vector_width(part, shape.lanes) or shape.lanes
        if part >= vector:
            lines += [
                f"for k in range(T.int64({part // vector})):",
                f"    for c in T.vectorized(T.int64({vector})):",
                f"        {_copy(shape, index, start, f'k * T.int64({vector}) + c')}",
            ]
        if remainder := part % vector:
            column = f"c + T.int64({part - remainder})"
            lines += [f"for c in range(T.int64({remainder})):", f"    {_copy(shape, index, start, column)}"]
        start += part
    body = "\n".join(f"            {line}" for line in lines)
    return parse_tvmscript(f"""
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


def _copy(shape: ConcatShape, part: int, start: int, column: str) -> str:
    """Return the TVMScript statement that copies, scales, shifts and bounds one element."""
    row = ", ".join(f"v{axis}" for axis in range(len(shape.rows)))
    target = f"{column} + T.int64({start})"
    value = f"x{part}[{row}, {column}]"
    if shape.is_scaled:
        value = f"{value} * s[{target}]"
    if shape.is_shifted:
        value = f"{value} + t[{target}]"
    for limit in shape.limits:
        value = limit.format(value)
    return f"y[{row}, {target}] = {value}"


# Operators that TVM fuses with a concatenation and with the producers before it.
_FUSED = (*OPERATORS, *LIMITS)


@dataclass(frozen=True)
class Copies:
    """Tensors to concatenate, their scale and shift per column, and sizes of the result."""

    parts: tuple[Any, ...]
    vectors: tuple[Any, ...]
    shape: ConcatShape


class ConcatToCopies(Pass[Copies]):
    """Concatenates along the last axis by copies, fused with scales and bounds after it."""

    name, match = "concat_to_copies", (CONCAT, *_FUSED)
    after = ("fold_batch_norm", "keep_joined_groups_apart")

    def check(self, call: Any, g: Graph) -> Copies:
        chain = followed_concat(call, g)
        if chain is None:
            raise Leave("the concat does not join rows") if operator_name(call) == CONCAT else Leave
        readers = readers_of_result(g.variable, g)
        if not readers:
            raise Leave
        if any(reader is not None and operator_name(reader) in _FUSED for reader in readers):
            raise Leave("TVM fuses the concat into the operator that reads the result")
        sources = [_match_copy_source(part, g) for part in parts_of(chain.concat, g)]
        sizes = tuple(sizes_of(value)[-1] for value, _ in sources)
        if max(sizes) < self.lanes:
            raise Leave("no part of the concat fills a vector")
        # Concatenate the parts' scales and shifts per column, then apply those of the whole row.
        scales, shifts = (
            np.concatenate([np.resize(values, size) for values, size in zip(arrays, sizes, strict=True)])
            for arrays in ([part.scale for _, part in sources], [part.shift for _, part in sources])
        )
        row_scale, row_shift = chain.affine.scale.reshape(-1), chain.affine.shift.reshape(-1)
        affine = ChannelAffine(scales * row_scale, shifts * row_scale + row_shift)
        rows, is_scaled, is_shifted = sizes_of(call)[:-1], affine.is_scaled(), affine.is_shifted()
        shape = ConcatShape(rows, sizes, is_scaled, is_shifted, chain.limits, self.lanes)
        vectors = (affine.scale,) * shape.is_scaled + (affine.shift,) * shape.is_shifted
        return Copies(tuple(value for value, _ in sources), vectors, shape)

    def rewrite(self, call: Any, facts: Copies, g: Graph) -> Any:
        constants = (relax.const(vector.astype("float32")) for vector in facts.vectors)
        arguments = [*facts.parts, *constants]
        return g.call_function("concatenate", concat_function(facts.shape), arguments, call.ty)


def _match_copy_source(part: Any, g: Graph) -> tuple[Any, ChannelAffine]:
    """Return the tensor to copy for a part, and the scale and shift to apply while copying.

    The scale and shift that compute a part move into the copy. The part is copied as it is
    if TVM can fuse them with the part's producer, or if another operator reads the part.
    """
    producer, same = g.producer(part), identity(part.ty.ndim)
    affine, links = affine_chain(producer, g) if producer is not None else (same, [])
    source = g.producer(links[0].value, "relax.call_tir") if links else None
    if source is None or not set(affine.varying_axes()) <= {part.ty.ndim - 1}:
        return part, same
    pattern = (g.tensor_function(source).attrs or {}).get("op_pattern")
    is_for_concats = isinstance(part, relax.DataflowVar) and all(map(is_last_axis_concat, g.readers(part)))
    return (
        (part, same) if pattern == OUT_ELEMENTWISE_FUSABLE or not is_for_concats else (links[0].value, affine)
    )
