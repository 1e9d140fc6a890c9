"""Look-ups of rows in tables, as of embeddings: one function with all that is done to their indices.

ONNX lets indices count from the end. The importer asks each whether it does, in a function of its own, which
costs as much as the look-up; and where the rows of many tables are joined, all are copied once more.
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
FEW = 2  # look-ups that are joined; the rows of one are copied again as cheaply


class FuseLookups(Pass[list[RowPart]]):
    """Looks rows up by indices from either end, for all tables whose rows are joined in one function."""

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
        shape, wanted = (rows, prod(sizes_of(call)) // rows), sizes_of(call)
        found = joined_rows("lookup", facts, (rows,), g)
        return found if shape == wanted else relax.op.reshape(found, wanted)


def _rows(call: Any) -> int:
    """How often a row is written that holds all that is joined."""
    axis = int(call.attrs.axis) % call.ty.ndim if operator_name(call) == _CONCAT else -1
    return prod(sizes_of(call)[:axis])


def _joined(part: Any, rows: int, g: Graph) -> RowPart:
    """The look-up that alone makes a part; else the part, as it was before it was reshaped."""
    value, alone = part, g.read_once(part)
    while (view := g.producer(value, *_VIEWS)) is not None and known(view):
        value = view.args[0]
        alone = alone and g.read_once(value)
    call, plain = g.producer(value, _TAKE), RowPart(value, prod(sizes_of(value)) // rows)
    if call is None or not alone or not known(call) or _rows(call) != rows:
        return plain
    try:
        return _lookup(call, g)
    except Leave:
        return plain


def _lookup(call: Any, g: Graph) -> RowPart:
    """What a `take` looks up. Raises Leave."""
    table, index = call.args
    if call.attrs.axis != 0 or table.ty.ndim != 2 or index.ty.ndim == 0:
        raise Leave("it takes no rows of a table")
    asked = g.producer(index, _WHERE)
    numbers = asked.args[2] if asked is not None else None
    if asked is None or not _from_either_end(asked, numbers, sizes_of(table)[0], g):
        raise Leave("its indices all count from the front")
    source, column = _column(numbers, g)
    return RowPart(table, sizes_of(table)[1], 0, source, column)


def _from_either_end(asked: Any, numbers: Any, rows: int, g: Graph) -> bool:
    """True for x + rows where x < 0, else x."""
    less, added = g.producer(asked.args[0], "relax.less"), g.producer(asked.args[1], "relax.add")
    if less is None or added is None:
        return False
    same = less.args[0].same_as(numbers) and added.args[0].same_as(numbers)
    return same and all(
        g.is_constant(call.args[1]) and call.args[1].ty.ndim == 0 and g.array(call.args[1]) == number
        for call, number in ((less, 0), (added, rows))
    )


def _column(numbers: Any, g: Graph) -> tuple[Any, int]:
    """The tensor in whose rows indices stand, and the column."""
    call = g.producer(numbers, *_VIEWS, _TAKE)
    if call is None or not known(call):
        return numbers, 0
    if operator_name(call) in _VIEWS:
        return _column(call.args[0], g)
    source, which = call.args
    if call.attrs.axis != source.ty.ndim - 1 or not g.is_constant(which) or which.ty.ndim > 0:
        return numbers, 0
    return source, int(g.array(which)) % sizes_of(source)[-1]
