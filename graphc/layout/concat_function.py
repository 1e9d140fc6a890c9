"""The tensor function of a concatenation along the last axis: a block a row, in it a loop a part."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphc.core.graph_rewriting import OPERATOR, numbers, parsed
from graphc.tasks.keep_packed_weights import BY_PART
from graphc.tasks.mark_elementwise_rows import width

REDUCTION = 3  # TVM's pattern kind that takes element-wise operators in and lets none follow


@dataclass(frozen=True)
class ConcatShape:
    """What decides the text: sizes, which vectors are applied, and limits as text."""

    rows: tuple[int, ...]
    parts: tuple[int, ...]  # of a row
    is_scaled: bool
    is_shifted: bool
    limits: tuple[str, ...]  # of what is computed, in their order
    lanes: int

    @property
    def row(self) -> int:
        return sum(self.parts)


def concat_function(shape: ConcatShape) -> Any:
    """Takes the parts, the factors and summands of the row if there are any, and the result.

    The last loop runs once, so that MetaSchedule vectorises it.
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
    """Vectors of each part, and what is left of it number by number."""
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
