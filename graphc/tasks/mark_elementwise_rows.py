"""Element-wise functions name a schedule rule of ours where their rows do not fill TVM's vectors.

TVM cuts all axes together in vectors of 64. Where one of them reaches beyond a row, the place of every number
is computed, and each is read by itself.
"""

from typing import Any

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import IterVar, Var

from graphc.core import graph_rewriting

LINE = "mallorn_line"


def lines(lanes: int) -> Any:
    """The pass that marks them."""
    return graph_rewriting.function_pass("Lines", lambda function: _marked(function, lanes))


def width(row: int, lanes: int) -> int:
    """The largest part of a row that is made of whole or half vectors; 0 where there is none."""
    parts = [part for part in range(1, min(row, graph_rewriting.WIDEST) + 1) if row % part == 0]
    filled = ([part for part in parts if part % unit == 0] for unit in (lanes, max(2, lanes // 2)))
    return max(next((found for found in filled if found), [0]))


def _marked(function: Any, lanes: int) -> Any:
    _, *blocks = graph_rewriting.collect(function.body, SBlock) or [None]
    if not blocks or not all(map(_by_element, blocks)):
        return function
    *_, last = blocks
    row = int(last.iter_vars[-1].dom.extent)
    if row % graph_rewriting.WIDEST == 0 or not width(row, lanes):
        return function
    return graph_rewriting.marked(function, [last], LINE, width(row, lanes))


def _by_element(block: Any) -> bool:
    """True if it reads along the axis that it writes along, or one number for all of a row."""
    kinds = {axis.iter_type for axis in block.iter_vars}
    fixed = all(isinstance(axis.dom.extent, tvm.tirx.IntImm) for axis in block.iter_vars)
    if (
        kinds != {IterVar.DataPar}
        or not fixed
        or len(block.writes) != 1
        or graph_rewriting.RULE in block.annotations
    ):
        return False
    along = block.iter_vars[-1].var
    return all(_reads_along(load, along) for load in graph_rewriting.collect(block.body, TensorLoad))


def _reads_along(load: Any, along: Any) -> bool:
    *others, last = load.indices or [along]
    within = isinstance(last, Var) and last.same_as(along)
    return not any(_has(index, along) for index in (others if within else load.indices))


def _has(index: Any, var: Any) -> bool:
    return any(found.same_as(var) for found in graph_rewriting.collect(index, Var))
