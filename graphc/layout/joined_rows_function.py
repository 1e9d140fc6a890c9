"""Build functions that concatenate rows of several tensors, copying each part in vectors.

TVM's own form selects the tensor for every number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax

from graphc.core import graph_rewriting
from graphc.core.graph import Graph
from graphc.core.graph_rewriting import sizes_of

Arguments = dict[Any, tuple[str, tuple[int, ...]]]  # name and shape of each tensor that is read
SMALL = 1 << 14  # numbers that one core copies before a second core could start


@dataclass(frozen=True)
class RowPart:
    """Columns of the result, copied from the same row of a tensor or from a looked-up row."""

    source: Any
    columns: int
    first: int = 0
    numbers: Any | None = None  # numbers of rows in `source`; negative ones count from the end
    column: int = 0


def joined_rows(name: str, parts: Sequence[RowPart], outer: tuple[int, ...], g: Graph) -> Any:
    """Return the call of a function that joins the parts for all indices of the outer axes."""
    tables = {part.source for part in parts if part.numbers is not None}
    read = dict.fromkeys(each for part in parts for each in (part.source, part.numbers) if each is not None)
    arguments: Arguments = {}
    values = []
    for at, value in enumerate(read):
        rows = (*outer, prod(sizes_of(value)) // prod(outer))
        shape = sizes_of(value) if value in tables else rows
        arguments[value] = f"x{at}", shape
        values.append(value if sizes_of(value) == shape else relax.op.reshape(value, shape))
    result = (*outer, sum(part.columns for part in parts))
    function = _function(parts, arguments, result, g.lanes)
    return g.call_function(name, function, values, relax.TensorType(result, "float32"))


def _function(parts: Sequence[RowPart], arguments: Arguments, result: tuple[int, ...], lanes: int) -> Any:
    """Build a function with a block per row, or one block if small, and a dummy last loop."""
    *outer, columns = result
    within = outer if prod(result) <= SMALL else [1 for _ in outer]
    extents = [size // inside for size, inside in zip(outer, within, strict=True)]
    a, v, q = (", ".join(f"{letter}{axis}" for axis in range(len(outer))) for letter in "avq")
    row = ", ".join(f"v{axis} * {inside} + q{axis}" for axis, inside in enumerate(within))
    rows = ", ".join(f"v{axis} * {inside}:(v{axis} + 1) * {inside}" for axis, inside in enumerate(within))
    buffers = [f'{name}: T.Buffer({shape}, "{of.ty.dtype}")' for of, (name, shape) in arguments.items()]
    reads = [f"{name}[{', '.join(f'0:{size}' for size in shape)}]" for name, shape in arguments.values()]
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}, y: T.Buffer({result}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {a}, once in T.grid({graph_rewriting.numbers(extents)}, 1):
        with T.sblock("rows"):
            {v}, v_once = T.axis.remap("{"S" * len(result)}", [{a}, once])
            T.reads({", ".join(reads)})
            T.writes(y[{rows}, 0:{columns}])
            T.sblock_attr({{"{graph_rewriting.OPERATOR}": "gather"}})
            for {q} in T.grid({graph_rewriting.numbers(within)}):
{_copies(parts, arguments, row, lanes)}""")


def _copies(parts: Sequence[RowPart], arguments: Arguments, row: str, lanes: int) -> str:
    """Return statements that copy whole vectors of each part, then its remainder."""
    text, column = "", 0
    for part in parts:
        source = f"{arguments[part.source][0]}[{_source_row(part, arguments, row)}"
        vectors, rest = divmod(part.columns, lanes)
        for start, count, width in ((0, vectors, lanes), (vectors * lanes, 1, rest)):
            at = f"{start} + k * {width} + i"
            copy = f"""
                for k in range({count}):
                    for i in T.vectorized({width}):
                        y[{row}, {column} + {at}] = {source}, {part.first} + {at}]
"""
            text += copy if count * width else ""
        column += part.columns
    return text


def _source_row(part: RowPart, arguments: Arguments, row: str) -> str:
    if part.numbers is None:
        return row
    name, _ = arguments[part.numbers]
    number, rows = f"{name}[{row}, {part.column}]", sizes_of(part.source)[0]
    return f"T.Select({number} < 0, {number} + T.{part.numbers.ty.dtype}({rows}), {number})"
