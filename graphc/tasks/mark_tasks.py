"""Mark the schedule rules of blocks that TVM's rules leave without vectors, and what no rule may change.

TVM fuses the axes of element-wise functions and splits them into vectors of 64. If a vector
extends beyond a row, each index is computed and each number loaded separately. The schedule
rule `schedule_line` makes vectors that end where a row does.

Of reductions, TVM only vectorises results, and only without an inner loop over terms.
`schedule_reduction` vectorises what is contiguous: terms of a row, or neighbouring results.
If results are few, it splits the terms among the cores.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import BufferStore, IterVar, Mul, Var

from mallorn.graphc.core.graph_pass import Leave, TensorFunctionPass
from mallorn.graphc.core.graph_rewriting import (
    OPERATOR,
    RULE,
    SUGGESTS,
    WIDEST,
    WIDTH,
    annotate_blocks,
    collect_nodes,
    extent_of,
    inline_all_but,
    largest_factor,
    split_in_two,
)
from mallorn.graphc.quant import block_quantized_matmul_function, tile_instruction

# Operator of blocks that read a vector in several parts; TVM would re-lay it for one part.
BY_PART = "concatenate"
FREE = "layout_free_buffers"  # function attribute: arguments that schedules may re-lay
LINE = "mallorn_line"
FOLD = "mallorn_fold"
VECTORS = 4  # vectors of a register tile: enough that sums do not wait for each other


class WrapExternCalls(TensorFunctionPass[None]):
    """Adds the root block that TVM's passes expect to functions that only call a library."""

    name, is_required = "wrap_extern_calls", True

    def check(self, function: Any) -> None:
        blocks = collect_nodes(function.body, SBlock)
        if not isinstance(function.body, SBlockRealize) or len(blocks) > 1:
            raise Leave("the function has blocks already")

    def rewrite(self, function: Any, facts: None) -> Any:
        root = SBlock([], [], [], "root", function.body)
        return function.with_body(SBlockRealize([], True, root))


class KeepPackedWeights(TensorFunctionPass[None]):
    """Keeps schedules from changing the layout of packed weights and concatenated parts."""

    name, rules = "keep_packed_weights", (block_quantized_matmul_function.RULE, tile_instruction.RULE)

    def check(self, function: Any) -> None:
        annotations = [block.annotations for block in collect_nodes(function, SBlock)]
        if not any(a.get(RULE) in self.rules or a.get(OPERATOR) == BY_PART for a in annotations):
            raise Leave("the function has no weights in blocks or tiles, and joins no parts")
        if FREE not in (function.attrs or {}):
            raise Leave("the function has no weights whose layout may change")

    def rewrite(self, function: Any, facts: None) -> Any:
        return function.without_attr(FREE)


@dataclass(frozen=True)
class VectorRow:
    """The block that writes the result, and how many numbers of a row form a vector."""

    block: Any
    width: int


class MarkElementwiseRows(TensorFunctionPass[VectorRow]):
    """Selects a schedule rule for element-wise functions whose rows do not fill TVM's vectors."""

    name, rules = "mark_elementwise_rows", (LINE,)

    def check(self, function: Any) -> VectorRow:
        _, *blocks = collect_nodes(function.body, SBlock) or [None]
        if not blocks or not all(map(_is_elementwise, blocks)):
            raise Leave("the function is not element-wise along rows, or names a rule")
        row = int(blocks[-1].iter_vars[-1].dom.extent)
        if row % WIDEST == 0:
            raise Leave("the rows of the function fill TVM's vectors")
        if not choose_vector_width(row, self.lanes):
            raise Leave("the rows of the function do not split into whole or half vectors")
        return VectorRow(blocks[-1], choose_vector_width(row, self.lanes))

    def rewrite(self, function: Any, facts: VectorRow) -> Any:
        return annotate_blocks(function, [facts.block], LINE, facts.width)


def choose_vector_width(row: int, lanes: int) -> int:
    """Return a row's largest divisor, up to WIDEST, of whole or half vectors, else 0."""
    parts = [part for part in range(1, min(row, WIDEST) + 1) if row % part == 0]
    for unit in (lanes, max(2, lanes // 2)):
        if fitting := [part for part in parts if part % unit == 0]:
            return max(fitting)
    return 0


def _is_elementwise(block: Any) -> bool:
    """Return whether a block reads along the axis that it writes, or one number per row."""
    kinds = {axis.iter_type for axis in block.iter_vars}
    fixed = all(isinstance(axis.dom.extent, tvm.tirx.IntImm) for axis in block.iter_vars)
    if kinds != {IterVar.DataPar} or not fixed or len(block.writes) != 1 or RULE in block.annotations:
        return False
    last_axis = block.iter_vars[-1].var
    for load in collect_nodes(block.body, TensorLoad):
        *outer, last = load.indices or [last_axis]
        is_along_row = isinstance(last, Var) and last.same_as(last_axis)
        indices = outer if is_along_row else load.indices
        variables = (var for index in indices for var in collect_nodes(index, Var))
        if any(var.same_as(last_axis) for var in variables):
            return False
    return True


def schedule_line(schedule: Any, block: Any) -> list[Any]:
    """Schedule the function as one loop over parts of rows; nothing is left to tune."""
    width = int(schedule.get(block).annotations[WIDTH])
    schedule = inline_all_but(schedule, [block])
    *outer, row = schedule.get_loops(block)
    parts, inner = schedule.split(row, [None, width])
    every = schedule.fuse(*outer, parts)
    for loop in (every, inner):
        schedule.annotate(loop, LINE, 1)  # so that TVM does not split the loop again
    schedule.parallel(every)
    schedule.vectorize(inner)
    return [schedule]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{LINE}", schedule_line, override=True)


class MarkReductions(TensorFunctionPass[list[Any]]):
    """Selects a vectorising schedule rule for reductions other than sums of products."""

    name, rules = "mark_reductions", (FOLD,)

    def check(self, function: Any) -> list[Any]:
        blocks = collect_nodes(function.body, SBlock)
        reducing = [
            block for block in blocks if any(axis.iter_type == IterVar.CommReduce for axis in block.iter_vars)
        ]
        if not reducing:
            raise Leave("the function has no reduction")
        values = [store.value for block in reducing for store in collect_nodes(block.body, BufferStore)]
        if any(isinstance(value, tvm.tirx.Add) and isinstance(value.b, Mul) for value in values):
            raise Leave("the function sums products")
        # The contiguous axis must split into half vectors; TVM is better at prime lengths.
        widths = range(max(2, self.lanes // 2), VECTORS * self.lanes + 1)
        sizes = [int(block.iter_vars[contiguous_axis(block)].dom.extent) for block in reducing]
        fitting = [
            block
            for block, size in zip(reducing, sizes, strict=True)
            if any(size % width == 0 for width in widths)
        ]
        if not fitting:
            raise Leave("no axis of the function splits into vectors")
        if all(block.annotations.get(RULE) == FOLD for block in fitting):
            raise Leave("the function names the schedule rule already")
        return fitting

    def rewrite(self, function: Any, facts: list[Any]) -> Any:
        return annotate_blocks(function, facts, FOLD, self.lanes)


def contiguous_axis(block: Any) -> int:
    """Return the index of an axis along which a block reads contiguously, else the last."""
    results = {hash(region.source) for region in block.writes}
    loads = [load for load in collect_nodes(block.body, TensorLoad) if hash(load.source) not in results]
    names = {hash(var) for load in loads[:1] for var in collect_nodes(load.indices[-1], Var)}
    axes = [index for index, axis in enumerate(block.iter_vars) if hash(axis.var) in names]
    return axes[0] if axes else len(block.iter_vars) - 1


UNLIMITED = -1  # zero would make TVM draw for ever
# Parts of the terms for the cores; results that are too few; terms that are worth splitting.
PARTS, FEW, MANY = 16, 64, 1 << 14


def schedule_reduction(schedule: Any, block: Any) -> list[Any]:
    """Split the terms among the cores if results are few; vectorise terms or results."""
    width = VECTORS * int(schedule.get(block).annotations[WIDTH])
    # The outer loops are over results, the inner ones over terms.
    results = sum(axis.iter_type == IterVar.DataPar for axis in schedule.get(block).iter_vars)
    axis = contiguous_axis(schedule.get(block))
    extents = [extent_of(schedule, loop) for loop in schedule.get_loops(block)]
    sums = block
    if prod(extents[:results]) < FEW * width and prod(extents[results:]) >= MANY:
        # A new block sums each part; `block` then sums up the parts.
        terms = schedule.get_loops(block)[results]
        parts = largest_factor(extents[results], PARTS)
        factors = schedule.sample_perfect_tile(terms, 2, UNLIMITED, [parts, extents[results] // parts])
        outer, _ = schedule.split(terms, factors)
        sums = schedule.rfactor(outer, 0)
        results, axis = results + 1, axis + (axis >= results)
    if axis < results:
        loops = schedule.get_loops(sums)
        outer_loops, terms = loops[:results], loops[results:]
        outer, inner = split_in_two(schedule, outer_loops.pop(axis), WIDEST, width)
        schedule.reorder(*outer_loops, outer, *terms, inner)
        if len(schedule.get(sums).writes) == 1:
            schedule.reverse_compute_at(schedule.cache_write(sums, 0, "global"), outer)
    else:
        terms = schedule.get_loops(sums)[results:]
        outer, inner = split_in_two(schedule, terms.pop(axis - results), WIDEST, width)
        schedule.reorder(*terms, outer, inner)
        lanes = schedule.rfactor(inner, results)
        if results:
            schedule.compute_at(lanes, schedule.get_loops(sums)[results - 1], preserve_unit_loops=True)
            inner, *outer_terms = schedule.get_loops(lanes)[results:]
            schedule.reorder(*outer_terms, inner)
    schedule.annotate(block, SUGGESTS, 1)
    return [schedule]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{FOLD}", schedule_reduction, override=True)
