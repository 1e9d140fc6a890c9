"""Channels of several tensors put beside each other, run by run.

TVM asks of every number which tensor it comes from. Where channels are last, those of one tensor lie beside
each other in both places, and are copied in vectors.
"""

from dataclasses import dataclass
from typing import Any

from graphc.core import graph_rewriting
from graphc.core.graph import Graph, operator_name
from graphc.core.graph_pass import Pass
from graphc.core.reporting_pass import Leave

_SLICE = "relax.strided_slice"
# What is computed in functions of its own; other operators are fused with what they read.
_APART = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.matmul", "relax.call_tir")


@dataclass(frozen=True)
class Run:
    """Channels of a tensor that lie beside each other."""

    source: Any
    first: int
    channels: int


class CopyChannelRuns(Pass[list[Run]]):
    """Copies slices of channels that are concatenated, where channels are last, in vectors."""

    name, match = "layout.copy_channel_runs", ("relax.concat",)

    def check(self, call: Any, g: Graph) -> list[Run]:
        if int(call.attrs.axis) % call.ty.ndim != call.ty.ndim - 1:
            raise Leave("its axis is not the last")
        found = [_run(part, g) for part in g.tuple_fields(call.args[0])]
        if all(run.channels == graph_rewriting.sizes_of(run.source)[-1] for run in found):
            raise Leave("none of its parts is a slice of channels")
        if not all(operator_name(reader) in _APART for reader in g.readers(g.variable)):
            raise Leave("what reads it can be computed with it")
        return found

    def rewrite(self, call: Any, facts: list[Run], g: Graph) -> Any:
        sources = list({run.source: None for run in facts})
        function = _function(facts, sources, graph_rewriting.sizes_of(call), g.lanes)
        return g.call_function("copy_runs", function, sources, call.ty)


def _run(part: Any, g: Graph) -> Run:
    """Of the tensor that a part is a slice of; else all of the part itself."""
    channels = graph_rewriting.sizes_of(part)[-1]
    call = g.producer(part, _SLICE)
    if call is None or list(map(int, call.args[1].fields)) != [call.ty.ndim - 1] or len(call.args) != 4:
        return Run(part, 0, channels)
    first = int(call.args[2].fields[0])
    return Run(call.args[0], range(graph_rewriting.sizes_of(call.args[0])[-1])[first:][0], channels)


def _function(runs: list[Run], sources: list[Any], sizes: tuple[int, ...], lanes: int) -> Any:
    """One block per row of channels; its last loop runs once, so that MetaSchedule vectorises it."""
    loops = [f"a{axis}" for axis in range(len(sizes) - 1)]
    row = ", ".join(f"v{axis}" for axis in range(len(loops)))
    names = {source: f"x{number}" for number, source in enumerate(sources)}
    buffers = "".join(
        f'{name}: T.Buffer({graph_rewriting.sizes_of(source)}, "float32"), ' for source, name in names.items()
    )
    reads = ", ".join(f"{names[run.source]}[{row}, {run.first}:{run.first + run.channels}]" for run in runs)
    copies, done = "", 0
    for run in runs:
        copies += _copy(names[run.source], run, row, done, lanes)
        done += run.channels
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({buffers}y: T.Buffer({sizes}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {", ".join(loops)}, once in T.grid({", ".join(map(str, sizes[:-1]))}, 1):
        with T.sblock("row"):
            {row}, v_once = T.axis.remap("{"S" * len(sizes)}", [{", ".join(loops)}, once])
            T.reads({reads})
            T.writes(y[{row}, 0:{sizes[-1]}])
{copies}""")


def _copy(name: str, run: Run, row: str, done: int, lanes: int) -> str:
    """Whole vectors, then what is left."""
    whole, rest = divmod(run.channels, lanes)
    text = ""
    if whole:
        text += f"""
            for k in range({whole}):
                for i in T.vectorized({lanes}):
                    y[{row}, {done} + k * {lanes} + i] = {name}[{row}, {run.first} + k * {lanes} + i]
"""
    if rest:
        at = whole * lanes
        text += f"""
            for i in T.vectorized({rest}):
                y[{row}, {done + at} + i] = {name}[{row}, {run.first + at} + i]
"""
    return text
