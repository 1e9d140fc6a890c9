"""Concatenate slices of channels by copying contiguous runs.

If channels are last, a slice of a tensor's channels is contiguous in source and result.
"""

from typing import Any

from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.layout.joined_rows_function import RowPart, joined_rows

# Operators that TVM computes in separate functions; it fuses others with their producers.
_APART = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul", "relax.call_tir")


class CopyChannelRuns(Pass[list[RowPart]]):
    """Concatenates slices of channels by vector copies, if channels are last."""

    name, match = "layout.copy_channel_runs", ("relax.concat",)

    def check(self, call: Any, g: Graph) -> list[RowPart]:
        if call.attrs.axis is None or not 0 < int(call.attrs.axis) % call.ty.ndim == call.ty.ndim - 1:
            raise Leave("its axis is not the last of several")
        runs = [_run(part, g) for part in g.tuple_fields(call.args[0])]
        if all(run.columns == sizes_of(run.source)[-1] for run in runs):
            raise Leave("none of its parts is a slice of channels")
        readers = g.readers(g.variable)
        if not all(reader is not None and operator_name(reader) in _APART for reader in readers):
            raise Leave("what reads it can be computed with it")
        return runs

    def rewrite(self, call: Any, facts: list[RowPart], g: Graph) -> Any:
        return joined_rows("copy_runs", facts, sizes_of(call)[:-1], g)


def _run(part: Any, g: Graph) -> RowPart:
    """Return the tensor and columns that a part is a slice of, or all columns of the part."""
    call = g.producer(part, "relax.strided_slice")
    if call is None or list(map(int, call.args[1].fields)) != [call.ty.ndim - 1] or len(call.args) != 4:
        return RowPart(part, sizes_of(part)[-1])
    first = int(call.args[2].fields[0])
    return RowPart(call.args[0], sizes_of(part)[-1], range(sizes_of(call.args[0])[-1])[first:][0])
