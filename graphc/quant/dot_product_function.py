"""Build products with constant weights by instructions that add several products per lane.

Such an instruction broadcasts a few consecutive inputs to all lanes. Each lane multiplies
them by weights of its own and adds up. Weights are packed so that a lane's are contiguous.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import TensorIntrin
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTilingWithIntrin, ReuseType

from mallorn.graphc.core import graph_rewriting

QUAD = 4  # products of bytes per 32-bit lane
PAIRS = "by_pairs"  # part of the names of rules for processors without VNNI


@dataclass(frozen=True)
class DotInstruction:
    """An instruction: its schedule rule, lanes, products per lane (`terms`), data types, and
    the LLVM function that wraps it."""

    rule: str
    lanes: int
    terms: int
    data: str
    weights: str
    sums: str
    function: str = ""  # empty if no schedule rule calls the instruction for one vector
    text: str = ""
    has_terms_first: bool = False  # the weights of all lanes for a term are contiguous

    def order_weights(self, lane: Any, term: Any) -> tuple[Any, Any]:
        """Return what belongs to the last two axes of packed weights, in their order."""
        return (term, lane) if self.has_terms_first else (lane, term)

    @property
    def input_index(self) -> str:
        """TVMScript for the index of an input, by the two loops over inputs."""
        return f"vko * {self.terms} + vki"


def register(instruction: DotInstruction) -> None:
    """Register the LLVM function as a tensor intrinsic, and the schedule rule that uses it."""
    with graph_rewriting.stacks_without_sources():
        _register(instruction)


def _register(instruction: DotInstruction) -> None:
    lanes, terms = instruction.lanes, instruction.terms
    rows, columns = instruction.order_weights(lanes, terms)
    head = f"""
@T.prim_func(s_tir=True)
def main(
    x: T.Buffer(({terms},), "{instruction.data}", offset_factor=1),
    w: T.Buffer(({rows}, {columns}), "{instruction.weights}", offset_factor=1),
    y: T.Buffer(({lanes},), "{instruction.sums}", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(y[0:{lanes}], x[0:{terms}], w[0:{rows}, 0:{columns}])
        T.writes(y[0:{lanes}])
"""
    weight = f"w[{', '.join(instruction.order_weights('vi', 'vk'))}]"
    meaning = f"""
        for i, k in T.grid({lanes}, {terms}):
            with T.sblock("update"):
                vi, vk = T.axis.remap("SR", [i, k])
                y[vi] = y[vi] + T.Cast("{instruction.sums}", x[vk]) * T.Cast("{instruction.sums}", {weight})
"""
    implementation = f"""
        T.attr(0, "pragma_import_llvm", {instruction.text!r})
        y[T.ramp(T.int32(0), 1, {lanes})] = T.call_pure_extern(
            "{instruction.sums}x{lanes}",
            "{instruction.function}",
            y.vload([0], "{instruction.sums}x{lanes}"),
            T.broadcast(T.reinterpret("int32", x.vload([0], "{instruction.data}x{terms}")), {lanes}),
            T.reinterpret("int32x{lanes}", w.vload([0, 0], "{instruction.weights}x{lanes * terms}")),
        )
"""
    description_and_body = (tvm.script.from_source(head + body) for body in (meaning, implementation))
    TensorIntrin.register(instruction.rule, *description_and_body, override=True)
    tile = MultiLevelTilingWithIntrin(  # MetaSchedule's tiling for CPUs
        instruction.rule,
        structure="SSRSRS",
        max_innermost_factor=64,
        reuse_write=ReuseType(req="may", levels=[1, 2], scope="global"),
    )

    def apply(schedule: Any, block: Any) -> Any:
        return tile.apply(graph_rewriting.inline_all_but(schedule, [block]), block)

    tvm.register_global_func(f"s_tir.meta_schedule.cpu.{instruction.rule}", apply, override=True)


@dataclass(frozen=True)
class Sums:
    """A product: shapes of data and result, and which data each element of the result reads.

    The result's axes are ``vi0``, ``vi1``, ... with outputs last. `kernel` is the shape in which
    weight matrices are arranged: the places ``vr0``, ``vr1``, ... of a window, which are all
    summed, or a stack with one matrix per ``vi0``. `strides` count data elements between rows
    of the result, and between rows of the window. It is None if those are not contiguous.
    """

    data: tuple[int, ...]
    result: tuple[int, ...]
    inputs: int
    read: tuple[str, ...]
    kernel: tuple[int, ...] = ()
    stacked: bool = False
    strides: tuple[int, int] | None = None

    @property
    def window_axes(self) -> list[str]:
        return [] if self.stacked else [f"r{axis}" for axis in range(len(self.kernel))]


def pack_weights(instruction: DotInstruction, weights: Any) -> Any:
    """Pack [..., inputs, outputs] as [outputs/lanes, ..., inputs/terms, lanes, terms]
    or [..., terms, lanes]."""
    *kernel, inputs, outputs = weights.shape
    padding = graph_rewriting.round_up_to_vectors(outputs, instruction.lanes) - outputs
    split = np.pad(weights, [(0, 0)] * (len(kernel) + 1) + [(0, padding)]).reshape(
        *kernel, inputs // instruction.terms, instruction.terms, -1, instruction.lanes
    )
    packed = np.moveaxis(split, -2, 0)
    return np.ascontiguousarray(packed if instruction.has_terms_first else np.moveaxis(packed, -2, -1))


def build_dot_function(instruction: DotInstruction, sums: Sums) -> Any:
    """Build a product's tensor function, whose innermost loops match the instruction.

    If the last vector is not full, sums are computed in a larger buffer and then copied.
    """
    *sizes, outputs = sums.result
    rows = [f"i{axis}" for axis in range(len(sizes))]
    axes = [*rows, "jo", "ji", *sums.window_axes, "ko", "ki"]
    lanes, steps = instruction.lanes, (sums.inputs // instruction.terms, instruction.terms)
    vectors = graph_rewriting.round_up_to_vectors(outputs, lanes) // lanes
    extents = [*sizes, vectors, lanes, *sums.kernel[: len(sums.window_axes)], *steps]
    kinds = "S" * (len(rows) + 2) + "R" * (len(sums.window_axes) + 2)
    values = [f"v{axis}" for axis in axes]
    place = [f"v{axis}" for axis in sums.window_axes or rows[: len(sums.kernel)]]
    x = f"x[{', '.join(sums.read)}]"
    w = f"w[{', '.join(['vjo', *place, 'vko', *instruction.order_weights('vji', 'vki')])}]"
    is_full = outputs % lanes == 0
    every = graph_rewriting.numbers((*sizes, vectors * lanes))
    z = f"{'y' if is_full else 'z'}[{', '.join(f'v{row}' for row in rows)}, vjo * {lanes} + vji]"
    vector = instruction.order_weights(lanes, instruction.terms)
    packed_sizes = graph_rewriting.numbers((vectors, *sums.kernel, steps[0], *vector))
    return graph_rewriting.parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({graph_rewriting.numbers(sums.data)}), "{instruction.data}"),
    w: T.Buffer(({packed_sizes}), "{instruction.weights}"),
    y: T.Buffer(({graph_rewriting.numbers(sums.result)}), "{instruction.sums}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    {"" if is_full else f'z = T.sblock_alloc_buffer(({every}), "{instruction.sums}")'}
    for {", ".join(axes)} in T.grid({graph_rewriting.numbers(extents)}):
        with T.sblock("dot"):
            {", ".join(values)} = T.axis.remap("{kinds}", [{", ".join(axes)}])
            T.sblock_attr({{"schedule_rule": "{instruction.rule}"}})
            with T.init():
                {z} = T.{instruction.sums}(0)
            {z} = {z} + T.Cast("{instruction.sums}", {x}) * T.Cast("{instruction.sums}", {w})
{"" if is_full else graph_rewriting.format_result_copy(sums.result)}""")
