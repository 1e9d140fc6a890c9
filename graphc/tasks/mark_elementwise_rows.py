"""Mark element-wise functions whose rows do not fill TVM's vectors.

TVM fuses all axes and splits them into vectors of 64. If a vector extends beyond a row,
each index is computed and each number loaded separately. The schedule rule `schedule_line`
makes vectors that end where a row does.
"""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import IterVar, Var

from mallorn.graphc.core.graph_pass import Leave, TensorFunctionPass
from mallorn.graphc.core.graph_rewriting import (
    RULE,
    WIDEST,
    WIDTH,
    annotate_blocks,
    collect_nodes,
    inline_all_but,
)

LINE = "mallorn_line"


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
