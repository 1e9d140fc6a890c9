"""Channels of several tensors put beside each other, run by run.

Where channels are last, those of one tensor lie beside each other in both places.
"""

from typing import Any

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.layout.joined_rows_function import RowPart, joined_rows

# What is computed in functions of its own; other operators are fused with what they read.
_APART = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul", "relax.call_tir")


class CopyChannelRuns(Pass[list[RowPart]]):
    """Copies slices of channels that are concatenated, where channels are last, in vectors."""

    name, match = "layout.copy_channel_runs", ("relax.concat",)

    def check(self, call: Any, g: Graph) -> list[RowPart]:
        if call.attrs.axis is None or not 0 < int(call.attrs.axis) % call.ty.ndim == call.ty.ndim - 1:
            raise Leave("its axis is not the last of several")
        found = [_run(part, g) for part in g.tuple_fields(call.args[0])]
        if all(run.columns == sizes_of(run.source)[-1] for run in found):
            raise Leave("none of its parts is a slice of channels")
        readers = g.readers(g.variable)
        if not all(reader is not None and operator_name(reader) in _APART for reader in readers):
            raise Leave("what reads it can be computed with it")
        return found

    def rewrite(self, call: Any, facts: list[RowPart], g: Graph) -> Any:
        return joined_rows("copy_runs", facts, sizes_of(call)[:-1], g)


def _run(part: Any, g: Graph) -> RowPart:
    """Of the tensor that a part is a slice of; else all of the part itself."""
    call = g.producer(part, "relax.strided_slice")
    if call is None or list(map(int, call.args[1].fields)) != [call.ty.ndim - 1] or len(call.args) != 4:
        return RowPart(part, sizes_of(part)[-1])
    first = int(call.args[2].fields[0])
    return RowPart(call.args[0], sizes_of(part)[-1], range(sizes_of(call.args[0])[-1])[first:][0])
