"""Concatenate slices of channels, or rows looked up in tables, by vector copies.

TVM's own function chooses the source tensor for every element. If channels are last, a
slice of a tensor's channels is contiguous in source and result.

ONNX allows negative indices in look-ups. TVM's importer handles them in a separate
function, which costs as much as the look-up, and concatenating the rows of several tables
copies them again. Here one function computes all of this.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax

from mallorn.graphc.core import graph_rewriting
from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import has_known_sizes, sizes_of

Arguments = dict[Any, tuple[str, tuple[int, ...]]]  # name and shape of each tensor that is read
SMALL = 1 << 14  # numbers that one core copies before a second core could start


@dataclass(frozen=True)
class RowPart:
    """Columns of the result, copied from the same row of `source` or one looked up there."""

    source: Any
    columns: int
    first: int = 0
    numbers: Any | None = None  # numbers of rows in `source`; negative ones count from the end
    column: int = 0


def call_row_concatenation(name: str, parts: Sequence[RowPart], outer: tuple[int, ...], g: Graph) -> Any:
    """Return a call that joins parts by row; `outer` is the shape without the last axis."""
    tables = {part.source for part in parts if part.numbers is not None}
    read = dict.fromkeys(tensor for part in parts for tensor in (part.source, part.numbers))
    read.pop(None, None)
    arguments: Arguments = {}
    values = []
    for number, value in enumerate(read):
        rows = (*outer, prod(sizes_of(value)) // prod(outer))
        shape = sizes_of(value) if value in tables else rows
        arguments[value] = f"x{number}", shape
        values.append(value if sizes_of(value) == shape else relax.op.reshape(value, shape))
    result = (*outer, sum(part.columns for part in parts))
    function = _function(parts, arguments, result, g.lanes)
    return g.call_function(name, function, values, relax.TensorType(result, "float32"))


def _function(parts: Sequence[RowPart], arguments: Arguments, result: tuple[int, ...], lanes: int) -> Any:
    """Build a tensor function with one block per row, or a single one for small results."""
    *outer, columns = result
    block_sizes = outer if prod(result) <= SMALL else [1 for _ in outer]
    extents = [size // count for size, count in zip(outer, block_sizes, strict=True)]
    a, v, q = (", ".join(f"{letter}{axis}" for axis in range(len(outer))) for letter in "avq")
    row = ", ".join(f"v{axis} * {count} + q{axis}" for axis, count in enumerate(block_sizes))
    rows = ", ".join(f"v{axis} * {count}:(v{axis} + 1) * {count}" for axis, count in enumerate(block_sizes))
    buffers = [f'{name}: T.Buffer({shape}, "{value.ty.dtype}")' for value, (name, shape) in arguments.items()]
    reads = [f"{name}[{', '.join(f'0:{size}' for size in shape)}]" for name, shape in arguments.values()]
    return graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}, y: T.Buffer({result}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {a}, once in T.grid({graph_rewriting.numbers(extents)}, 1):
        with T.sblock("rows"):
            {v}, v_once = T.axis.remap("{"S" * len(result)}", [{a}, once])
            T.reads({", ".join(reads)})
            T.writes(y[{rows}, 0:{columns}])
            T.sblock_attr({{"{graph_rewriting.OPERATOR}": "gather"}})
            for {q} in T.grid({graph_rewriting.numbers(block_sizes)}):
{_copies(parts, arguments, row, lanes)}""")


def _copies(parts: Sequence[RowPart], arguments: Arguments, row: str, lanes: int) -> str:
    """Return statements that copy each part in whole vectors, then its last elements."""
    text, column = "", 0
    for part in parts:
        source_row = row
        if part.numbers is not None:
            number = f"{arguments[part.numbers][0]}[{row}, {part.column}]"
            rows, dtype = sizes_of(part.source)[0], part.numbers.ty.dtype
            source_row = f"T.Select({number} < 0, {number} + T.{dtype}({rows}), {number})"
        source = f"{arguments[part.source][0]}[{source_row}"
        vectors, remainder = divmod(part.columns, lanes)
        for start, count, width in ((0, vectors, lanes), (vectors * lanes, 1, remainder)):
            offset = f"{start} + k * {width} + i"
            copy = f"""
                for k in range({count}):
                    for i in T.vectorized({width}):
                        y[{row}, {column} + {offset}] = {source}, {part.first} + {offset}]
"""
            text += copy if count * width else ""
        column += part.columns
    return text


# Operators that TVM computes in separate functions; it fuses others with their producers.
_APART = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul", "relax.call_tir")


class CopyChannelRuns(Pass[list[RowPart]]):
    """Concatenates slices of channels by vector copies, if channels are last."""

    name, match = "copy_channel_runs", ("relax.concat",)

    def check(self, call: Any, g: Graph) -> list[RowPart]:
        if call.attrs.axis is None or not 0 < int(call.attrs.axis) % call.ty.ndim == call.ty.ndim - 1:
            raise Leave("the axis of the concat is not the last of several")
        runs = []
        for part in g.tuple_fields(call.args[0]):
            cut = g.producer(part, "relax.strided_slice")
            if cut is None or list(map(int, cut.args[1].fields)) != [cut.ty.ndim - 1] or len(cut.args) != 4:
                runs.append(RowPart(part, sizes_of(part)[-1]))
                continue
            source, first = cut.args[0], int(cut.args[2].fields[0])
            runs.append(RowPart(source, sizes_of(part)[-1], range(sizes_of(source)[-1])[first:][0]))
        if all(run.columns == sizes_of(run.source)[-1] for run in runs):
            raise Leave("none of the parts of the concat is a slice of channels")
        readers = g.readers(g.variable)
        if not all(reader is not None and operator_name(reader) in _APART for reader in readers):
            raise Leave("TVM can fuse the concat with the operators that read the result")
        return runs

    def rewrite(self, call: Any, facts: list[RowPart], g: Graph) -> Any:
        return call_row_concatenation("copy_runs", facts, sizes_of(call)[:-1], g)


_CONCAT, _TAKE, _WHERE = "relax.concat", "relax.take", "relax.where"
_VIEWS = ("relax.reshape", "relax.squeeze", "relax.expand_dims")
FEW = 2  # fewest look-ups worth fusing with a concatenation


class FuseLookups(Pass[list[RowPart]]):
    """Fuses table look-ups, their handling of negative indices and their concatenation."""

    name, match = "fuse_lookups", (_TAKE, _CONCAT)

    def check(self, call: Any, g: Graph) -> list[RowPart]:
        if operator_name(call) == _TAKE:
            return [_lookup(call, g)]
        if call.attrs.axis is None:
            raise Leave("the concat has no axis: all parts are flattened")
        rows, parts = _rows(call), []
        for part in g.tuple_fields(call.args[0]):
            value, is_read_once = part, g.has_one_reader(part)
            while (view := g.producer(value, *_VIEWS)) is not None and has_known_sizes(view):
                value = view.args[0]
                is_read_once = is_read_once and g.has_one_reader(value)
            parts.append(RowPart(value, prod(sizes_of(value)) // rows))
            lookup = g.producer(value, _TAKE)
            if lookup is not None and is_read_once and has_known_sizes(lookup) and _rows(lookup) == rows:
                with suppress(Leave):
                    parts[-1] = _lookup(lookup, g)
        if sum(part.numbers is not None for part in parts) < FEW:
            raise Leave("the concat joins fewer than two look-ups")
        return parts

    def rewrite(self, call: Any, facts: list[RowPart], g: Graph) -> Any:
        rows = _rows(call)
        shape, sizes = (rows, prod(sizes_of(call)) // rows), sizes_of(call)
        result = call_row_concatenation("lookup", facts, (rows,), g)
        return result if shape == sizes else relax.op.reshape(result, sizes)


def _rows(call: Any) -> int:
    axis = int(call.attrs.axis) % call.ty.ndim if operator_name(call) == _CONCAT else -1
    return prod(sizes_of(call)[:axis])


def _lookup(call: Any, g: Graph) -> RowPart:
    """Describe a `take` of table rows by indices that may be negative, else raise Leave."""
    table, index = call.args
    if call.attrs.axis != 0 or table.ty.ndim != 2 or index.ty.ndim == 0:
        raise Leave("the operator does not take rows of a table")
    # Indices from either end are x + rows if x < 0, else x.
    choice = g.producer(index, _WHERE)
    comparison = None if choice is None else g.producer(choice.args[0], "relax.less")
    addition = None if choice is None else g.producer(choice.args[1], "relax.add")
    if choice is None or comparison is None or addition is None:
        raise Leave("the look-up does not handle negative indices")
    numbers = choice.args[2]
    for operation, number in ((comparison, 0), (addition, sizes_of(table)[0])):
        left, right = operation.args
        if not left.same_as(numbers) or not g.is_constant(right) or right.ty.ndim or g.array(right) != number:
            raise Leave("the look-up does not handle negative indices")
    source, column = _match_index_column(numbers, g)
    return RowPart(table, sizes_of(table)[1], 0, source, column)


def _match_index_column(numbers: Any, g: Graph) -> tuple[Any, int]:
    """Return the tensor from which the indices are taken, and the column of its rows."""
    call = g.producer(numbers, *_VIEWS, _TAKE)
    if call is None or not has_known_sizes(call):
        return numbers, 0
    if operator_name(call) in _VIEWS:
        return _match_index_column(call.args[0], g)
    source, index = call.args
    if call.attrs.axis != source.ty.ndim - 1 or not g.is_constant(index) or index.ty.ndim > 0:
        return numbers, 0
    return source, int(g.array(index)) % sizes_of(source)[-1]
