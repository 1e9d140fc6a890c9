"""Fuse look-ups of rows in tables, such as embeddings, with the arithmetic on their indices.

ONNX lets indices count from the end. The importer handles this in a separate function, which
costs as much as the look-up; concatenating the rows of many tables copies them again.
"""

from math import prod
from typing import Any

from tvm import relax

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import known, sizes_of
from graphc.core.reporting_pass import Leave
from graphc.layout.joined_rows_function import RowPart, joined_rows

_CONCAT, _TAKE, _WHERE = "relax.concat", "relax.take", "relax.where"
_VIEWS = ("relax.reshape", "relax.squeeze", "relax.expand_dims")
FEW = 2  # fewest look-ups worth fusing with a concatenation


class FuseLookups(Pass[list[RowPart]]):
    """Looks up rows by indices from either end, for all tables of a concatenation in one function."""

    name, match = "layout.fuse_lookups", (_TAKE, _CONCAT)

    def check(self, call: Any, g: Graph) -> list[RowPart]:
        if operator_name(call) == _TAKE:
            return [_lookup(call, g)]
        if call.attrs.axis is None:
            raise Leave("it joins all numbers of its parts")
        parts = [_joined(part, _rows(call), g) for part in g.tuple_fields(call.args[0])]
        if sum(part.numbers is not None for part in parts) < FEW:
            raise Leave("it joins less than two look-ups")
        return parts

    def rewrite(self, call: Any, facts: list[RowPart], g: Graph) -> Any:
        rows = _rows(call)
        shape, sizes = (rows, prod(sizes_of(call)) // rows), sizes_of(call)
        joined = joined_rows("lookup", facts, (rows,), g)
        return joined if shape == sizes else relax.op.reshape(joined, sizes)


def _rows(call: Any) -> int:
    """Return the number of rows that the result is made of."""
    axis = int(call.attrs.axis) % call.ty.ndim if operator_name(call) == _CONCAT else -1
    return prod(sizes_of(call)[:axis])


def _joined(part: Any, rows: int, g: Graph) -> RowPart:
    """Return the look-up that only this part reads, or else the part before reshapes."""
    value, is_read_once = part, g.read_once(part)
    while (view := g.producer(value, *_VIEWS)) is not None and known(view):
        value = view.args[0]
        is_read_once = is_read_once and g.read_once(value)
    call, copied_part = g.producer(value, _TAKE), RowPart(value, prod(sizes_of(value)) // rows)
    if call is None or not is_read_once or not known(call) or _rows(call) != rows:
        return copied_part
    try:
        return _lookup(call, g)
    except Leave:
        return copied_part


def _lookup(call: Any, g: Graph) -> RowPart:
    """Return what a `take` looks up. Raises Leave if it does not take rows of a table."""
    table, index = call.args
    if call.attrs.axis != 0 or table.ty.ndim != 2 or index.ty.ndim == 0:
        raise Leave("it takes no rows of a table")
    choice = g.producer(index, _WHERE)
    numbers = choice.args[2] if choice is not None else None
    if choice is None or not _from_either_end(choice, numbers, sizes_of(table)[0], g):
        raise Leave("its indices all count from the front")
    source, column = _column(numbers, g)
    return RowPart(table, sizes_of(table)[1], 0, source, column)


def _from_either_end(where: Any, numbers: Any, rows: int, g: Graph) -> bool:
    """Return whether the choice is x + rows if x < 0, else x."""
    comparison, added = g.producer(where.args[0], "relax.less"), g.producer(where.args[1], "relax.add")
    if comparison is None or added is None:
        return False
    same = comparison.args[0].same_as(numbers) and added.args[0].same_as(numbers)
    return same and all(
        g.is_constant(call.args[1]) and call.args[1].ty.ndim == 0 and g.array(call.args[1]) == number
        for call, number in ((comparison, 0), (added, rows))
    )


def _column(numbers: Any, g: Graph) -> tuple[Any, int]:
    """Return the tensor whose rows contain the indices, and the column of the indices."""
    call = g.producer(numbers, *_VIEWS, _TAKE)
    if call is None or not known(call):
        return numbers, 0
    if operator_name(call) in _VIEWS:
        return _column(call.args[0], g)
    source, index = call.args
    if call.attrs.axis != source.ty.ndim - 1 or not g.is_constant(index) or index.ty.ndim > 0:
        return numbers, 0
    return source, int(g.array(index)) % sizes_of(source)[-1]
